"""Writes results together with where they come from."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from workers.core.provenance import provenance

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
    path.write_text(json.dumps({"provenance": origin, "result": result}, indent=2) + "\n")
    return path
