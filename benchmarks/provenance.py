"""What a number must carry: commit, command, versions, hardware, time."""

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

__all__ = ["RESULTS", "provenance", "save"]

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "ray", "grpcio", "numpy")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def provenance(seed: int) -> dict[str, Any]:
    """Where a result comes from, as JSON."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "argv": ["python", "-m", "benchmarks.run", *sys.argv[1:]],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "hardware": {
            "cpu": _cpu_name(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "cores": psutil.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        },
        "load_average": psutil.getloadavg()[0],
    }


def save(name: str, result: dict[str, Any], seed: int) -> Path:
    """Write `benchmarks/results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(seed), "result": result}, indent=2) + "\n")
    return path
