"""When a client that was refused should come back, from how fast places get free."""

__all__ = ["RetryHints"]

SMOOTHING = 0.2  # weight of the newest interval
MIN_HINT_S, MAX_HINT_S = 0.05, 10.0
UNKNOWN_S = 0.5  # before anything has left
OVERDUE = 2.0  # an interval that is still open counts once it is this many times the usual one


class RetryHints:
    """Pure: times come from the caller, in seconds of any one clock.

    Each refusal is given a place of its own in an imaginary line that moves on as fast as places get free, so that
    those who were refused do not come back all at once.
    """

    def __init__(self) -> None:
        self._interval_s: float | None = None
        self._last_s: float | None = None
        self._line_ends_s = 0.0

    def left(self, now_s: float) -> None:
        """A place got free."""
        if self._last_s is not None:
            newest = max(0.0, now_s - self._last_s)
            old = newest if self._interval_s is None else self._interval_s
            self._interval_s = old + SMOOTHING * (newest - old)
        self._last_s = now_s

    def idle(self) -> None:
        """Nobody is left: the time until the next one comes says nothing of how fast places get free."""
        self._last_s = None

    def interval_s(self, now_s: float) -> float:
        """Seconds from one free place to the next, as far as is known."""
        known = UNKNOWN_S if self._interval_s is None else self._interval_s
        waited = 0.0 if self._last_s is None else now_s - self._last_s
        return waited if waited > OVERDUE * known else known

    def refuse(self, now_s: float) -> float:
        """The hint for one refusal, in seconds."""
        begin = min(max(self._line_ends_s, now_s), now_s + MAX_HINT_S)
        self._line_ends_s = begin + self.interval_s(now_s)
        return min(MAX_HINT_S, max(MIN_HINT_S, self._line_ends_s - now_s))
