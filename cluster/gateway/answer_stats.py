"""Statistics of one answer over all verifiers that worked on it."""

from collections.abc import Callable
from itertools import zip_longest

from workers.core.statistics import GenerationStats

__all__ = ["AnswerStats"]

SUMMED = (
    "verify_steps",
    "plain_steps",
    "drafted_tokens",
    "accepted_tokens",
    "stale_proposals",
    "invalid_proposals",
    "drafter_changes",
    "preemptions",
    "queue_ms",
)


class AnswerStats:
    """Every output token counts once, times are the gateway's, the rest adds up.

    A verifier reports at the end, so one that was lost never did: each of its messages counts as one verify step, and
    its drafted tokens stay unknown. Tokens that the client brings along (resumption) count as one plain step each.
    So neither overstates what speculation gained.
    """

    def __init__(self, clock: Callable[[], float], *, prompt_tokens: int, seed: int, resumed_tokens: int) -> None:
        self._clock = clock
        self._started_at = clock()
        self._first_token_at: float | None = None
        self._steps = 0  # of the verifier at work
        self._first_report = True
        self._total = GenerationStats(
            prompt_tokens=prompt_tokens, seed=seed, verify_steps=resumed_tokens, plain_steps=resumed_tokens
        )

    def received(self, num_tokens: int) -> None:
        """A message with output tokens came."""
        if num_tokens:
            self._steps += 1
            self._first_token_at = self._first_token_at or self._clock()

    def reported(self, stats: GenerationStats) -> None:
        """The verifier at work has ended the answer."""
        self._steps = 0
        total = self._total
        for name in SUMMED:
            setattr(total, name, getattr(total, name) + getattr(stats, name))
        total.drafted_per_depth = _added(total.drafted_per_depth, stats.drafted_per_depth)
        total.accepted_per_depth = _added(total.accepted_per_depth, stats.accepted_per_depth)
        total.exact = total.exact and stats.exact
        total.cached_prompt_tokens = stats.cached_prompt_tokens if self._first_report else total.cached_prompt_tokens
        self._first_report = False

    def lost(self) -> None:
        """The verifier at work is gone, or was left before it could report."""
        self._total.verify_steps += self._steps
        self._steps = 0
        self._first_report = False

    def result(self, output_tokens: int) -> GenerationStats:
        """At the end of the answer; `output_tokens` counts all of it."""
        self.lost()
        now = self._clock()
        self._total.output_tokens = output_tokens
        self._total.total_ms = 1e3 * (now - self._started_at)
        self._total.time_to_first_token_ms = 1e3 * ((self._first_token_at or now) - self._started_at)
        return self._total


def _added(left: list[int], right: list[int]) -> list[int]:
    return [a + b for a, b in zip_longest(left, right, fillvalue=0)]
