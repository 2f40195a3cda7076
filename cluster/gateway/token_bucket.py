"""A rate of tokens with room for bursts; pure: times come from the caller."""

__all__ = ["TokenBucket"]


class TokenBucket:
    """Fills at `rate_per_s` up to `burst`. What was not known beforehand is taken all the same, as a debt."""

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._level = burst
        self._filled_at = now_s

    def change(self, rate_per_s: float, burst: float, now_s: float) -> None:
        """New limits from now on; a debt stays."""
        self._level = min(self._filled(now_s), burst)
        self._rate_per_s, self._burst = rate_per_s, burst

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Seconds until `tokens` (or the burst, if that is less) can be taken; 0 = now."""
        missing = min(tokens, self._burst) - self._filled(now_s)
        return max(0.0, missing / self._rate_per_s)

    def take(self, tokens: float, now_s: float) -> None:
        """Take them in any case; below zero, `wait_s` waits for them to come back."""
        self._level = self._filled(now_s) - tokens

    def _filled(self, now_s: float) -> float:
        self._level = min(self._burst, self._level + self._rate_per_s * max(0.0, now_s - self._filled_at))
        self._filled_at = max(self._filled_at, now_s)
        return self._level
