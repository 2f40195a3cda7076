"""How long an answer takes, learned from those that have ended; pure."""

from dataclasses import dataclass

__all__ = ["PaceMeter", "Work"]

SMOOTHING = 0.1  # weight of the newest answer
BEST_FADES = 1.02  # the best pace is forgotten slowly: machines and models of speculation change
MARGIN = 1.1  # an answer is expected to take this much longer than the last ones did


@dataclass(frozen=True)
class Work:
    """What is still to be computed of an answer."""

    prompt_tokens: int
    max_output_tokens: int


class PaceMeter:
    """Times are seconds. Prompt and output tokens have a pace each; answers may use only a share of `max_tokens`."""

    def __init__(self) -> None:
        self._output_s: float | None = None  # for one token, at the present load
        self._best_output_s = 0.0
        self._prompt_s = 0.0
        self._used = 1.0  # share of the tokens that answers were allowed which they had

    def ended(self, work: Work, output_tokens: int, first_token_s: float, total_s: float) -> None:
        """An answer came to its natural end. `first_token_s` and `total_s` count from the start of its prefill."""
        if output_tokens < 1 or total_s <= 0:
            return
        output_s = max(0.0, total_s - first_token_s) / max(1, output_tokens - 1)
        prompt_s = first_token_s / max(1, work.prompt_tokens)
        used = min(1.0, output_tokens / max(1, work.max_output_tokens))
        if self._output_s is None:
            self._output_s, self._best_output_s, self._prompt_s, self._used = output_s, output_s, prompt_s, used
            return
        self._output_s += SMOOTHING * (output_s - self._output_s)
        self._prompt_s += SMOOTHING * (prompt_s - self._prompt_s)
        self._used += SMOOTHING * (used - self._used)
        self._best_output_s = min(self._best_output_s * BEST_FADES, self._output_s)

    def expected_s(self, work: Work) -> float:
        """Seconds from its admission to its end at the present load; 0 while nothing is known."""
        return MARGIN * self._seconds(work, self._output_s or 0.0)

    def best_s(self, work: Work) -> float:
        """As `expected_s`, at the best pace that was seen lately."""
        return self._seconds(work, self._best_output_s)

    def _seconds(self, work: Work, output_s: float) -> float:
        return work.prompt_tokens * self._prompt_s + self._used * work.max_output_tokens * output_s
