"""What a step costs when 1, 2 or 3 processes share the model, how much rank 0 tells the others, and what one
synchronisation takes by itself."""

import multiprocessing
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import distributed

from benchmarks.steps import step_of
from workers.core.config import ModelConfig
from workers.core.threads import run_apart
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.models.tiny import build_tiny_model
from workers.runner.kv_memory import storage_for
from workers.runner.model_runner import ModelRunner

__all__ = ["measure_tensor_parallel"]

NODES = (0, 4, 16)
ROUNDS = 10
SLOTS = 512
ROW, REDUCES = 576, 300  # numbers of SmolLM2's hidden states; repetitions


def measure_tensor_parallel(model: Path) -> dict[str, Any]:
    """Of `model` (9 heads, 3 K/V heads: 1 or 3 ranks) and of a tiny model that 2 ranks can share as well.

    One after the other, each with one thread for each process; 1 rank is measured before and after the others.
    """
    with tempfile.TemporaryDirectory() as folder:
        tiny = build_tiny_model(folder, hidden_size=96, num_heads=12, num_kv_heads=6)
        return {
            "context_tokens": 128,
            "all_reduce_ms": {ranks: _all_reduce_ms(ranks) for ranks in (2, 3)},
            "tiny": {f"{n} ranks, run {i}": _measure(tiny, n) for i, n in enumerate((1, 2, 3, 1))},
            model.name: {f"{n} ranks, run {i}": _measure(model, n) for i, n in enumerate((1, 3, 1))},
        }


def _measure(model: Path, ranks: int) -> dict[str, Any]:
    config = ModelConfig(model=str(model), num_threads=1, tensor_parallel_size=ranks, rank_timeout_s=120.0)
    loaded = load_model(config)
    try:
        return {"dtype": loaded.dtype, **run_apart(lambda: _steps(loaded))}
    finally:
        loaded.close()


def _all_reduce_ms(ranks: int) -> float:
    """Median of one row, in processes that do nothing else: what the machine asks for a synchronisation."""
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(ranks) as pool:
        store = (Path(folder) / "store").as_uri()
        times = pool.starmap(_all_reduces, [(rank, ranks, store) for rank in range(ranks)], chunksize=1)
    return median(times[0])


def _all_reduces(rank: int, ranks: int, store: str) -> list[float]:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    row, times = torch.ones(1, ROW), []
    for _ in range(REDUCES):
        started = time.perf_counter()
        distributed.all_reduce(row)
        times.append((time.perf_counter() - started) * 1e3)
    distributed.destroy_process_group()
    return times


def _steps(loaded: LoadedModel) -> dict[str, Any]:
    runner = ModelRunner(loaded, storage_for(loaded, SLOTS))
    times: dict[int, list[float]] = {nodes: [] for nodes in NODES}
    sent: dict[int, int] = {}
    for nodes in NODES:
        runner.forward([step_of(nodes)])
    for _ in range(ROUNDS):
        for nodes in NODES:
            before = 0 if loaded.leader is None else loaded.leader.counters.bytes
            started = time.perf_counter()
            runner.forward([step_of(nodes)])
            times[nodes].append((time.perf_counter() - started) * 1e3)
            sent[nodes] = 0 if loaded.leader is None else loaded.leader.counters.bytes - before
    return {
        "median_step_ms": {nodes: median(values) for nodes, values in times.items()},
        "best_step_ms": {nodes: min(values) for nodes, values in times.items()},
        "broadcast_bytes_per_step": sent,
    }
