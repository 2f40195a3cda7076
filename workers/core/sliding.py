"""What happened lately: percentiles and differences over a window that slides with the clock. Safe for all threads."""

import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping

__all__ = ["SlidingDeltas", "SlidingHistogram"]

SLICES = 6  # of the window; what it holds is between one slice less and the whole
GROWTH = 1.1  # between two bounds of the histogram: a percentile is at most so much too high
LOWEST, HIGHEST = 0.01, 1e8
BOUNDS = tuple(LOWEST * GROWTH**i for i in range(math.ceil(math.log(HIGHEST / LOWEST, GROWTH)) + 1))


class SlidingHistogram:
    """Counts of positive values in buckets that grow by a tenth each, in fixed memory whatever the rate."""

    def __init__(self, window_s: float, clock: Callable[[], float]) -> None:
        """`clock`: seconds; must not go back."""
        if not window_s > 0:
            raise ValueError(f"window_s must be above 0, not {window_s}")
        self._slice_s = window_s / SLICES
        self._clock = clock
        self._lock = threading.Lock()
        self._slices: deque[tuple[int, dict[int, int]]] = deque()  # number of the slice, counts by bucket

    def add(self, value: float) -> None:
        """Values out of range count as the nearest that is in it."""
        bucket = bisect_right(BOUNDS, value)
        with self._lock:
            number = self._forget()
            if not self._slices or self._slices[-1][0] != number:
                self._slices.append((number, {}))
            counts = self._slices[-1][1]
            counts[bucket] = counts.get(bucket, 0) + 1

    def percentile(self, share: float) -> float | None:
        """The least bound with at least this `share` (above 0, at most 1) of the values below it; None without any."""
        with self._lock:
            self._forget()
            merged: dict[int, int] = {}
            for _, counts in self._slices:
                for bucket, count in counts.items():
                    merged[bucket] = merged.get(bucket, 0) + count
        left = share * sum(merged.values())
        for bucket in sorted(merged):
            left -= merged[bucket]
            if left <= 1e-9:
                return BOUNDS[min(bucket, len(BOUNDS) - 1)]
        return None

    def _forget(self) -> int:
        """Drop slices that have left the window; the number of the present one."""
        number = int(self._clock() // self._slice_s)
        while self._slices and self._slices[0][0] <= number - SLICES:
            self._slices.popleft()
        return number


class SlidingDeltas:
    """By how much counters that only grow have grown within the window, seen from whenever somebody looks."""

    def __init__(self, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, Mapping[str, float]]] = deque([(clock(), {})])

    def update(self, counters: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Growth of each counter since the oldest look of the window, and how many seconds ago that was.

        Counters start at 0 when this object is made.
        """
        with self._lock:
            now = self._clock()
            while len(self._seen) > 1 and self._seen[1][0] <= now - self._window_s:
                self._seen.popleft()
            then, before = self._seen[0]
            if now - self._seen[-1][0] >= self._window_s / SLICES:
                self._seen.append((now, dict(counters)))
            return {name: value - before.get(name, 0) for name, value in counters.items()}, now - then
