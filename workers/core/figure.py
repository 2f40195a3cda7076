"""PNG figures; matplotlib is imported when one is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.core.errors import ConfigurationError

__all__ = ["figure"]


@contextmanager
def figure(
    path: Path, rows: int = 1, columns: int = 1, *, size: tuple[float, float], share_x: bool = False
) -> Iterator[Any]:
    """Give matplotlib's axes (one, or an array of them) to draw on; saved to `path` at the end. `size` in inches.

    Raises `ConfigurationError` where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ConfigurationError("plots need matplotlib, which comes with the extra outrider-server[train]") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(rows, columns, figsize=size, sharex=share_x, constrained_layout=True)
    try:
        yield axes
        drawn.savefig(path, dpi=110)
    finally:
        pyplot.close(drawn)
