"""Simulated time: what happens next, in order of time and, at equal times, of planning."""

import heapq
from collections.abc import Callable

__all__ = ["Timeline"]


class Timeline:
    """`now` in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        self._planned = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def clock(self) -> float:
        return self.now

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Plan; what lies in the past happens next."""
        self._planned += 1
        heapq.heappush(self._queue, (max(time_s, self.now), self._planned, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, until_s: float) -> None:
        """All that is planned up to then."""
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self.now, _, action = heapq.heappop(queue)
            self.happened += 1
            action()
        self.now = until_s
