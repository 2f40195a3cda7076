"""Memory: the K/V pool keeps its size, and 500 requests leave nothing behind."""

import gc
import random
import tempfile
from typing import Any

import psutil

from benchmarks.engine_rig import engine_for, request_for
from workers.core.config import ModelConfig, NgramConfig
from workers.core.sampling_params import SpeculationMode
from workers.models.loader import load_model
from workers.models.tiny import build_tiny_model
from workers.proposers.ngram import NgramProposer
from workers.verifier.offline import run_together

__all__ = ["measure_memory"]

WARM_UP, REQUESTS, TOGETHER = 100, 500, 10


def measure_memory(seed: int) -> dict[str, Any]:
    """Resident memory before and after 500 requests (after a warm-up), and the most blocks ever in use."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(ModelConfig(model=str(build_tiny_model(folder)), dtype="float32", num_threads=1))
        engine = engine_for(loaded, NgramProposer(NgramConfig()), num_blocks=64)
        pool = engine.kv_memory_bytes
        _run(engine, WARM_UP, rng)
        before = _resident()
        series = []
        for _ in range(REQUESTS // 100):
            _run(engine, 100, rng)
            series.append(_resident())
        after_pool, free = engine.kv_memory_bytes, engine.num_free_blocks
        engine.stop()
    return {
        "requests": REQUESTS,
        "kv_pool_bytes": {"configured": pool, "after": after_pool},
        "free_blocks_after": free,
        "total_blocks": 64,
        "resident_bytes_before": before,
        "resident_bytes_after_each_100": series,
        "growth_bytes": series[-1] - before,
    }


def _run(engine: Any, count: int, rng: random.Random) -> None:
    for _ in range(count // TOGETHER):
        prompts = [[rng.randrange(3, 512) for _ in range(rng.randrange(4, 60))] for _ in range(TOGETHER)]
        run_together(engine, [request_for(p, 16, i, SpeculationMode.ON) for i, p in enumerate(prompts)])


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
