"""What every number and every checkpoint carries: commit, command, versions, hardware, time."""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

__all__ = ["of_a_start", "provenance", "write_result"]

SOURCES = (":/", ":(top,exclude)benchmarks/results")  # results that were just written are no change of the program
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft", "ray", "grpcio", "numpy")


def provenance(argv: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Where a result comes from, as JSON; `argv` is the command (default: this process's own)."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES)),
        "argv": argv or [Path(sys.argv[0]).name, *sys.argv[1:]],
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "hardware": {
            "cpu": _cpu_name(),
            "cores": psutil.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        },
        "load_average": psutil.getloadavg()[0],
        **more,
    }


def of_a_start(origin: Mapping[str, Any]) -> dict[str, Any]:
    """What tells the starts of one long work apart; None for what `origin` does not say."""
    return {name: origin.get(name) for name in ("commit", "uncommitted_changes", "time", "argv")}


def _git(*arguments: str) -> str:
    """Of the repository that this file belongs to; empty when it was installed without one."""
    try:
        return subprocess.run(  # noqa: S603 - fixed arguments
            ["git", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def write_result(path: Path, result: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    """A JSON file of measurements with where they come from."""
    path.write_text(json.dumps({"provenance": origin, "result": result}, indent=2) + "\n")
