"""What an answer cost and what speculation did for it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

__all__ = ["GenerationStats"]


@dataclass(frozen=True)
class GenerationStats:
    """Counters of one answer as the server sent them; ratios are derived."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Prompt tokens whose K/V came from the prefix cache."""
    verify_steps: int = 0
    plain_steps: int = 0
    """Verify steps without draft tokens."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    drafted_per_depth: tuple[int, ...] = ()
    """Trees that had a node at this depth (index 0 = depth 1)."""
    accepted_per_depth: tuple[int, ...] = ()
    stale_proposals: int = 0
    invalid_proposals: int = 0
    drafter_changes: int = 0
    preemptions: int = 0
    queue_ms: float = 0.0
    time_to_first_token_ms: float = 0.0
    total_ms: float = 0.0
    exact: bool = True
    """False only under a verification rule that is not exact."""
    seed: int = 0

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per verify step (1.0 = speculation gained nothing)."""
        return self.output_tokens / self.verify_steps if self.verify_steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def acceptance_rate_per_depth(self) -> tuple[float, ...]:
        """Of the trees that reached a depth, the share that was accepted there."""
        pairs = zip_longest(self.accepted_per_depth, self.drafted_per_depth, fillvalue=0)
        return tuple(accepted / drafted if drafted else 0.0 for accepted, drafted in pairs)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over the whole time on the server, queue and prefill included."""
        return 1000.0 * self.output_tokens / self.total_ms if self.total_ms else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Output tokens after the first, over the time after the first."""
        decode_ms = self.total_ms - self.time_to_first_token_ms
        return 1000.0 * max(self.output_tokens - 1, 0) / decode_ms if decode_ms > 0 else 0.0

    @staticmethod
    def combined(parts: "Sequence[GenerationStats]") -> "GenerationStats":
        """Statistics of several answers to one prompt: counters add up, times and prompt count once."""
        if not parts:
            return GenerationStats()
        if len(parts) == 1:
            return parts[0]
        return GenerationStats(**{spec.name: _combine(spec.name, parts) for spec in fields(GenerationStats)})


_SHARED = {"prompt_tokens", "queue_ms", "time_to_first_token_ms", "total_ms"}


def _combine(name: str, parts: Sequence[GenerationStats]) -> Any:
    values = [getattr(part, name) for part in parts]
    if name == "seed":
        return values[0]
    if name == "exact":
        return all(values)
    if name == "cached_prompt_tokens":
        return min(values)  # what the cache held before this request; later answers hit the first one's blocks
    if name in _SHARED:
        return max(values)
    if name.endswith("_per_depth"):
        return tuple(sum(column) for column in zip_longest(*values, fillvalue=0))
    return sum(values)
