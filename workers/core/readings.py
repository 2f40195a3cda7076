"""What a replica counts, as whoever exports it reads it: totals, levels, and single observations.

Written by engines, read from one other thread. Names are those of docs/observability.md without their prefix.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["MAX_OBSERVATIONS", "Observations", "Readings"]

MAX_OBSERVATIONS = 4096  # kept until they are read; with a reading a second that is more than a reader wants

Number = int | float
ByLabel = Mapping[str, Number]


class Observations:
    """Values since the last reading, the newest of them. One thread adds, one takes."""

    def __init__(self, limit: int = MAX_OBSERVATIONS) -> None:
        self._values: deque[float] = deque(maxlen=limit)
        self._added = 0
        self._taken = 0
        self.dropped = 0  # values that nobody read; counted when the others are taken

    def add(self, value: float) -> None:
        """Cheap, and bounded whether or not anybody reads."""
        self._values.append(value)
        self._added += 1

    def take(self) -> list[float]:
        """What is there now, oldest first."""
        added, count = self._added, len(self._values)
        taken = []
        for _ in range(count):
            try:
                taken.append(self._values.popleft())
            except IndexError:  # never with one reader
                break
        missing = max(0, added - self._taken - count)
        self._taken += count + missing
        self.dropped += missing
        return taken


@dataclass(frozen=True)
class Readings:
    """One look. A mapping in place of a number holds one for each value of the metric's label."""

    totals: Mapping[str, Number | ByLabel]  # since the start of the process; they never fall
    levels: Mapping[str, Number | ByLabel]  # now
    observed: Mapping[str, Sequence[float] | Mapping[str, Sequence[float]]] = field(default_factory=dict)  # since then
