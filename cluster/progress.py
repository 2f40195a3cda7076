"""Says what is going on while something takes its time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

__all__ = ["progress"]


@contextmanager
def progress(console: Console, first: str) -> Iterator[Callable[[str], None]]:
    """Shows what is going on: a spinner on a terminal, else a line for each change."""
    if console.is_terminal:
        with console.status(first) as spinner:
            yield lambda text: spinner.update(escape(text))
        return
    shown = ""

    def line(text: str) -> None:
        nonlocal shown
        if text != shown:
            shown = text
            console.print(text, markup=False, soft_wrap=True)

    line(first)
    yield line
