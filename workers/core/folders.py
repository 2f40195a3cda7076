"""Final folders and files appear whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_whole"]


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Write into the yielded folder; at the end it takes the place of `folder`. On an error the old one stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(folder.name + ".writing")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        yield fresh
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file; `OSError` leaves what was there before."""
    fresh = path.with_name(path.name + ".writing")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
