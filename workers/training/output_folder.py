"""Where a training run may write: its output takes the place of what lies there, so that has to be an older output."""

import json
from collections.abc import Mapping
from pathlib import Path

from workers.core.errors import ConfigurationError

__all__ = ["check_output"]


def check_output(output: Path, inputs: Mapping[str, str | Path]) -> None:
    """Raises `ConfigurationError` when `output` cannot be replaced without a loss.

    `inputs`: what the run reads, by the name of its setting; hub ids, which are no paths, are let through.
    """
    if output.name in ("", ".."):
        raise ConfigurationError(f"output {str(output)!r} has no name of its own: name a folder that may be replaced")
    for name, given in inputs.items():
        path = Path(given)
        if path.exists() and _overlap(output.resolve(), path.resolve()):
            raise ConfigurationError(
                f"output {str(output)!r} would replace {name} {str(given)!r}, or lies within it: choose another output"
            )
    if output.exists() and not _may_be_replaced(output):
        raise ConfigurationError(
            f"output {str(output)!r} exists and was not written by a training run (its provenance.json is missing or "
            "of something else): choose another output, or move it away"
        )


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _may_be_replaced(output: Path) -> bool:
    """An empty folder, or one that a training run wrote."""
    if not output.is_dir():
        return False
    if not any(output.iterdir()):
        return True
    try:
        origin = json.loads((output / "provenance.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(origin, dict) and {"config", "data", "metrics"} <= origin.keys()
