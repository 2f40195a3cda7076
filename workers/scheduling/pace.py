"""How long an answer takes, learned from steps and answers; pure."""

from dataclasses import dataclass

__all__ = ["PaceMeter", "Work"]

STEP_SMOOTHING = 0.05  # weight of the newest step
ANSWER_SMOOTHING = 0.1  # weight of the newest answer
BEST_FADES = 1.0005  # with each step the best pace is forgotten a little: machines and loads change
MARGIN = 1.1  # an answer is expected to take this much longer than the present pace says


@dataclass(frozen=True)
class Work:
    """What is still to be computed of an answer."""

    prompt_tokens: int
    max_output_tokens: int


class PaceMeter:
    """Times are seconds. It learns also from answers that fail to end in time, else a slow server would look fast."""

    def __init__(self) -> None:
        self._output_s: float | None = None  # for one token of one answer, at the present load
        self._best_output_s = 0.0
        self._prompt_s: float | None = None  # for one token, other requests' steps included
        self._used: float | None = None  # share of the tokens that answers were allowed which they had

    def step(self, seconds: float, tokens_per_answer: float) -> None:
        """A step took so long, and brought each answer in it so many tokens."""
        if tokens_per_answer <= 0 or seconds < 0:
            return
        pace = seconds / tokens_per_answer
        if self._output_s is None:
            self._output_s = self._best_output_s = pace
            return
        self._output_s += STEP_SMOOTHING * (pace - self._output_s)
        self._best_output_s = min(self._best_output_s * BEST_FADES, self._output_s)

    def first_token(self, prompt_tokens: int, seconds: float) -> None:
        """From its admission to its first token, an answer took so long."""
        pace = seconds / max(1, prompt_tokens)
        old = pace if self._prompt_s is None else self._prompt_s
        self._prompt_s = old + ANSWER_SMOOTHING * (pace - old)

    def ended(self, work: Work, output_tokens: int) -> None:
        """An answer came to its natural end."""
        share = min(1.0, output_tokens / max(1, work.max_output_tokens))
        old = share if self._used is None else self._used
        self._used = old + ANSWER_SMOOTHING * (share - old)

    def expected_s(self, work: Work) -> float:
        """Seconds from its admission to its end at the present load; 0 while nothing is known."""
        return MARGIN * self._seconds(work, self._output_s)

    def best_s(self, work: Work) -> float:
        """As `expected_s`, at the best pace that was seen lately."""
        return self._seconds(work, self._best_output_s)

    def rest_s(self, work: Work, output_tokens: int) -> float:
        """Seconds to the end of an answer that has `output_tokens` already, at the present load."""
        share = 1.0 if self._used is None else self._used
        return max(0.0, share * work.max_output_tokens - output_tokens) * (self._output_s or 0.0)

    def _seconds(self, work: Work, output_s: float | None) -> float:
        if output_s is None or self._prompt_s is None or self._used is None:
            return 0.0
        return work.prompt_tokens * self._prompt_s + self._used * work.max_output_tokens * output_s
