"""Plain decoding: transformers `generate` against our engine, same weights, same prompts, one run."""

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.engine_rig import engine_for, request_for
from workers.core.sampling_params import SpeculationMode
from workers.core.threads import run_apart
from workers.models.loaded import LoadedModel
from workers.text.chat_template import Message
from workers.text.tokenizer import Tokenizer
from workers.verifier.offline import run_together

__all__ = ["measure_decoding"]

QUESTIONS = (
    "Explain what a hash table is.",
    "Write three sentences about the sea.",
    "How does a bicycle stay upright?",
    "Name four uses of copper.",
    "What is a prime number?",
    "Describe a morning in a small town.",
    "Why is the sky blue?",
    "How do I boil an egg?",
)
ROUNDS = 3


def measure_decoding(folder: Path, loaded: LoadedModel, tokens: int = 48) -> dict[str, Any]:
    """Tokens per second: transformers (bf16), one request, eight requests; and whether both write the same text."""
    tokenizer = Tokenizer.load(str(folder))
    prompts = [tokenizer.encode_chat([Message("user", q)]) for q in QUESTIONS]
    reference = run_apart(lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval())
    rates: dict[str, list[float]] = {"transformers": [], "one": [], "eight": []}
    for round_number in range(ROUNDS):
        prompt = prompts[round_number]
        # Each in a thread that ends: what one leaves waiting would slow the other down (workers.core.threads).
        rates["transformers"].append(run_apart(partial(_warm_generate, reference, prompt, tokens)))
        rates["one"].append(_our_rate(loaded, [prompt], tokens))
        rates["eight"].append(_our_rate(loaded, prompts, tokens))
    base = median(rates["transformers"])
    return {
        "output_tokens": tokens,
        "dtype_ours": loaded.dtype,
        "dtype_transformers": "bfloat16",
        "tokens_per_s": rates,
        "ratio_one_request": median(rates["one"]) / base,
        "ratio_eight_requests": median(rates["eight"]) / base,
        "targets": {"ratio_one_request": 1.2, "ratio_eight_requests": 4.0},
    }


def _our_rate(loaded: LoadedModel, prompts: list[list[int]], tokens: int) -> float:
    """Tokens per second of all requests together, prefill included; nothing of the prompts is in the prefix cache."""
    engine = engine_for(loaded)
    run_together(engine, [request_for(prompts[0][::-1], 8, 0, SpeculationMode.OFF)])  # warms up
    started = time.perf_counter()
    run_together(engine, [request_for(p, tokens, i, SpeculationMode.OFF) for i, p in enumerate(prompts)])
    rate = len(prompts) * tokens / (time.perf_counter() - started)
    engine.stop()
    return rate


def _warm_generate(model: Any, prompt: list[int], tokens: int) -> float:
    _generate(model, prompt, 8)
    return _generate(model, prompt, tokens)


def _generate(model: Any, prompt: list[int], tokens: int) -> float:
    """Tokens per second of transformers' own loop, prefill included (as in ours)."""
    ids = torch.tensor([prompt])
    started = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
    return float((output.shape[1] - len(prompt)) / (time.perf_counter() - started))
