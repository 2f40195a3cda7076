"""What a verify step costs by the number of tree nodes, with a profile of where the time goes."""

import time
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from workers.attention.forward_context import SequenceChunk
from workers.models.loaded import LoadedModel
from workers.runner.kv_memory import storage_for
from workers.runner.model_runner import ModelRunner

__all__ = ["measure_steps", "step_of"]

CONTEXT = 128
NODES = (0, 4, 8, 12, 16, 24, 32)
ROUNDS = 15


def measure_steps(loaded: LoadedModel) -> dict[str, Any]:
    """Milliseconds of the forward pass of one request at 128 tokens of context, and the arithmetic bound."""
    runner = ModelRunner(loaded, storage_for(loaded, 512))
    times: dict[int, list[float]] = {n: [] for n in NODES}
    for n in NODES:
        runner.forward([step_of(n)])
    for _ in range(ROUNDS):  # interleaved, so that noise hits all sizes alike
        for n in NODES:
            started = time.perf_counter()
            runner.forward([step_of(n)])
            times[n].append((time.perf_counter() - started) * 1e3)
    step_ms = {n: median(values) for n, values in times.items()}
    weights = _num_linear_weights(loaded)
    flops, peak = 2 * 17 * weights, _peak_flops()
    compute_ms = flops / peak * 1e3
    read_ms = weights * (4 if loaded.dtype == "float32" else 2) / _read_bytes_per_s() * 1e3
    return {
        "context_tokens": CONTEXT,
        "step_ms": step_ms,
        "ratio_16_nodes": step_ms[16] / step_ms[0],
        "target": {"ratio_16_nodes": 1.5},
        "limit": {  # of matrix products alone, at this machine's measured rates
            "flops_of_17_rows": flops,
            "measured_peak_flops_per_s": peak,
            "least_ms_for_17_rows": compute_ms,
            "least_ms_to_read_the_weights": read_ms,
            "ratio_of_an_ideal_engine": max(compute_ms, read_ms) / max(compute_ms / 17, read_ms),
        },
        "profile_of_16_nodes_ms": _profile(runner),
    }


def step_of(nodes: int) -> SequenceChunk:
    """Root and a binary-ish tree of `nodes` nodes; timing does not depend on its shape."""
    slots = np.arange(CONTEXT + 1 + nodes, dtype=np.int64)
    window = slots[CONTEXT:]
    mask = torch.ones(1 + nodes, 1 + nodes, dtype=torch.bool).tril() if nodes else None
    return SequenceChunk(
        token_ids=[5] * (1 + nodes),
        positions=[CONTEXT + i for i in range(1 + nodes)],
        slots=window,
        context_slots=slots[:CONTEXT],
        window_slots=window,
        mask=mask,
        logits_for=range(1 + nodes),
    )


def _num_linear_weights(loaded: LoadedModel) -> int:
    config = loaded.model.config
    hidden, inner, head = config.hidden_size, config.intermediate_size, loaded.head_dim
    attention = 2 * hidden * loaded.num_heads * head + 2 * hidden * loaded.num_kv_heads * head
    return int(loaded.num_layers * (attention + 3 * hidden * inner) + hidden * config.vocab_size)


def _peak_flops() -> float:
    """Best fp32 rate of a large matrix product on all threads."""
    size = 1536
    left, right = torch.randn(size, size), torch.randn(size, size)
    best = min(_seconds(lambda: left @ right) for _ in range(8))
    return 2 * size**3 / best


def _read_bytes_per_s() -> float:
    """Best rate of reading memory that no cache holds."""
    numbers = torch.ones(1 << 26)  # 256 MiB
    return numbers.numel() * 4 / min(_seconds(numbers.sum) for _ in range(8))


def _seconds(run: Any) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _profile(runner: ModelRunner) -> dict[str, float]:
    """Self time of the most expensive operators of one step with 16 nodes."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        runner.forward([step_of(16)])
    rows = sorted(recorded.key_averages(), key=lambda row: -row.self_cpu_time_total)[:10]
    return {row.key: row.self_cpu_time_total / 1e3 for row in rows}
