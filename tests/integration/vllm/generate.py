"""Runs inside vLLM's environment: greedy answers with and without Medusa heads, and how many guesses were accepted.

python generate.py MODEL HEADS < prompts.json > answers.json      (prompts: lists of token ids)
"""

import json
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

MAX_TOKENS = 20


def answers(model, heads, prompts):  # type: ignore[no-untyped-def]
    """Token ids of each answer, and the counter of accepted draft tokens."""
    from vllm import LLM, SamplingParams

    speculation = {"method": "medusa", "model": heads, "num_speculative_tokens": 3} if heads else None
    llm = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=4,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=speculation,
        model_loader_extra_config={"enable_weights_track": False},  # 0.32 takes a token_map for a missing weight
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)
    results = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling)
    accepted = sum(m.value for m in llm.get_metrics() if m.name == "vllm:spec_decode_num_accepted_tokens")
    return [list(result.outputs[0].token_ids) for result in results], accepted


def main() -> None:
    """One engine a process: the first argument of two is enough for plain decoding."""
    prompts = json.load(sys.stdin)
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM prints
    found, accepted = answers(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None, prompts)
    json.dump({"answers": found, "accepted": accepted}, output)


if __name__ == "__main__":
    main()
