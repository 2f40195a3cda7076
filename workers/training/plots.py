"""PNG plots of a training run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.core.figure import figure

__all__ = ["plot_log"]


def plot_log(log: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Loss above, every other validation metric below, by training step."""
    with figure(path, 2, size=(8, 8), share_x=True) as (above, below):
        above.plot(*_series(log, "loss"), alpha=0.5, label="training")
        above.plot(*_series(log, "eval_loss"), marker="o", label="validation")
        above.set_ylabel("loss")
        above.set_title(title)
        above.legend()
        names = sorted({name for entry in log for name in entry if name.startswith("eval_")} - {"eval_loss"})
        for name in names:
            below.plot(*_series(log, name), marker="o", label=name.removeprefix("eval_"))
        below.set_xlabel("step")
        below.set_ylabel("validation")
        if names:
            below.legend()


def _series(log: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    points = [(entry["step"], entry[name]) for entry in log if name in entry and "step" in entry]
    return [step for step, _ in points], [value for _, value in points]
