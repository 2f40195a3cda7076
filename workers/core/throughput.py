"""A rate that follows what is measured."""

__all__ = ["Throughput"]

WEIGHT = 0.2  # of a new measurement


class Throughput:
    """Running mean of tokens per second, weighted by time: one long step counts as much as several short ones.

    One thread records, any thread reads.
    """

    def __init__(self, weight: float = WEIGHT) -> None:
        self._weight = weight
        self._tokens = 0.0
        self._ms = 0.0

    def record(self, tokens: int, ms: float) -> None:
        """`tokens` took `ms`."""
        keep = 1.0 - self._weight
        self._tokens = keep * self._tokens + self._weight * tokens
        self._ms = keep * self._ms + self._weight * ms

    @property
    def per_second(self) -> float:
        """0.0 while nothing was measured."""
        return 1e3 * self._tokens / self._ms if self._ms > 0.0 else 0.0
