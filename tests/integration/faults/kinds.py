"""What may happen to a process, or to the way to it."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from benchmarks.faults.connection import Direction
from benchmarks.faults.processes import freeze, kill
from tests.integration.faults.rig import Node

__all__ = ["ENGINE_FAULTS", "params"]

ENGINE_FAULTS: dict[str, Callable[[Node], object]] = {
    "kill -9": lambda node: kill(node.process),
    "connection cut": lambda node: node.proxy.cut(),
    "connections refused": lambda node: node.proxy.refuse(),
    "frozen": lambda node: freeze(node.process),
    "black hole": lambda node: node.proxy.black_hole(),
    "half open": lambda node: node.proxy.call(lambda proxy: proxy.half_open(Direction.DOWN)),
}


def params(faults: Iterable[str], usual: Collection[str]) -> list[Any]:
    """The usual ones run always; the others are variants, for `make test-slow`."""
    return [pytest.param(name, marks=() if name in usual else pytest.mark.slow) for name in faults]
