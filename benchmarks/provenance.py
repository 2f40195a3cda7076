"""Writes results together with where they come from."""

import sys
from pathlib import Path
from typing import Any

import torch

from workers.core.provenance import provenance, write_result

__all__ = ["RESULTS", "save"]

RESULTS = Path(__file__).parent / "results"


def save(name: str, result: dict[str, Any], seed: int) -> Path:
    """Write `benchmarks/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    origin = provenance(
        ["python", "-m", "benchmarks.run", *sys.argv[1:]],
        seed=seed,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
    )
    write_result(path, result, origin)
    return path
