"""What a proposer costs the steps that it serves."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from workers.proposers.base import Proposer

__all__ = ["Stopwatch"]

TIMED = ("wait", "collect", "commit", "flush")


class Stopwatch:
    """Times the calls of one proposer. It stays the object that it is: an engine asks what a proposer can do."""

    def __init__(self, proposer: Proposer) -> None:
        self.spent_ms = 0.0
        self.steps = 0
        for name in TIMED:
            setattr(proposer, name, self._timed(getattr(proposer, name), counts=name == "collect"))

    def reset(self) -> None:
        """Read and reset while the engine is idle."""
        self.spent_ms, self.steps = 0.0, 0

    @property
    def ms_per_step(self) -> float:
        """Of steps that asked for proposals."""
        return self.spent_ms / max(1, self.steps)

    def _timed(self, call: Callable[..., Any], *, counts: bool) -> Callable[..., Any]:
        @wraps(call)
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.spent_ms += (time.perf_counter() - started) * 1e3
                self.steps += counts

        return timed
