"""What a verifier pays for being able to speculate while it does not: method none against mode off, in turn."""

import time
from statistics import median
from typing import Any

from benchmarks.decode import QUESTIONS
from benchmarks.engine_rig import engine_for, request_for
from benchmarks.roundtrip import connected_proposer
from workers.core.sampling_params import SpeculationMode
from workers.models.loaded import LoadedModel
from workers.text.chat_template import Message
from workers.verifier.engine import VerifierEngine
from workers.verifier.offline import run_together

__all__ = ["measure_off_state"]

ROUNDS = 9
TOGETHER = (1, 8)


def measure_off_state(loaded: LoadedModel, tokens: int = 32, rounds: int = ROUNDS) -> dict[str, Any]:
    """Tokens per second of an engine without a proposer, and of one with a drafter connected and requests that are off.

    Each round measures both, one right behind the other; their ratio is the median over the rounds.
    """
    prompts = [loaded.tokenizer.encode_chat([Message("user", question)]) for question in QUESTIONS]
    with connected_proposer() as (proposer, _):
        engines = {"none": engine_for(loaded), "off": engine_for(loaded, proposer)}
        try:
            rates = {together: _rates(engines, prompts[:together], tokens, rounds) for together in TOGETHER}
        finally:
            for engine in engines.values():
                engine.stop()
    ratios = {
        together: median(off / none for off, none in zip(both["off"], both["none"], strict=True))
        for together, both in rates.items()
    }
    return {"output_tokens": tokens, "tokens_per_s": rates, "off_to_none": ratios, "targets": {"off_to_none": 0.99}}


def _rates(
    engines: dict[str, VerifierEngine], prompts: list[list[int]], tokens: int, rounds: int
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for round_number in range(-1, rounds):  # the first one warms up
        for name in sorted(engines, reverse=bool(round_number % 2)):  # neither always goes first
            started = time.perf_counter()
            run_together(engines[name], [request_for(p, tokens, i, SpeculationMode.OFF) for i, p in enumerate(prompts)])
            if round_number >= 0:
                rates[name].append(len(prompts) * tokens / (time.perf_counter() - started))
    return rates
