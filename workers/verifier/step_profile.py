"""Measures what steps of a few sizes cost, when the verifier starts: the first belief of the budget controller."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.runner.model_runner import ModelRunner
from workers.scheduling.step_cost import CostSample, StepLoad

__all__ = ["profile_steps"]

# (requests, nodes of each, committed tokens of each), the most telling first: time may run out.
SIZES = ((1, 0, 64), (1, 16, 64), (8, 0, 64), (1, 4, 64), (4, 8, 64), (1, 8, 64), (32, 0, 64), (1, 0, 512), (16, 8, 64))
MAX_ROUNDS = 5
WARM_UP_SHARE = 0.3  # of the time

Clock = Callable[[], float]


def profile_steps(
    runner: ModelRunner,
    *,
    num_slots: int,
    context_length: int,
    max_rows: int,
    limit_ms: float,
    clock: Clock = time.perf_counter,
) -> list[CostSample]:
    """Medians of the sizes that fit and that `limit_ms` leaves time for. Overwrites K/V: nothing may be cached yet."""
    started = clock()

    def spent(share: float = 1.0) -> bool:
        return (clock() - started) * 1e3 >= limit_ms * share

    batches = {}
    for requests, nodes, context in SIZES:
        rows = requests * (1 + nodes)
        if rows <= max_rows and context + rows <= num_slots and context + nodes < context_length:
            batches[StepLoad(rows, requests, requests * context)] = _batch(requests, nodes, context)
    times: dict[StepLoad, list[float]] = {load: [] for load in batches}
    for load, batch in batches.items():  # the first run of a size also pays for allocations
        if limit_ms <= 0.0 or spent(WARM_UP_SHARE if load.rows > 1 else 1.0):
            break
        runner.forward(batch)
    for _ in range(MAX_ROUNDS):
        for load, batch in batches.items():
            if spent():
                break
            begun = clock()
            runner.forward(batch)
            times[load].append((clock() - begun) * 1e3)
    return [CostSample(load, median(values)) for load, values in times.items() if values]


def _batch(requests: int, nodes: int, context: int) -> list[SequenceChunk]:
    """All requests read the same context; each has a root and a chain of nodes of its own."""
    rows = 1 + nodes
    shared = np.arange(context, dtype=np.int64)
    chunks = []
    for request in range(requests):
        window = context + request * rows + np.arange(rows, dtype=np.int64)
        chunks.append(
            SequenceChunk(
                token_ids=[1] * rows,
                positions=list(range(context, context + rows)),
                slots=window,
                context_slots=shared,
                window_slots=window,
                mask=causal_mask(rows),
                logits_for=range(rows),
            )
        )
    return chunks
