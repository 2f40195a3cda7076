"""Whether a pool found its size after a change of load: how far it went, how often it turned, when it was there."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Convergence", "judge"]


@dataclass(frozen=True)
class Convergence:
    """`converged`: at most one turn, within `tolerance` of the last target before the limit, overshoot below its."""

    first: int
    last: int
    most: int
    turns: int  # changes of direction after the step
    settled_s: float  # after the step; from then on within the tolerance of the last target
    overshoot: float  # most / last - 1
    converged: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(
    times_s: Sequence[float],
    targets: Sequence[int],
    step_s: float,
    *,
    within_s: float = 600.0,
    tolerance: float = 0.1,
    max_overshoot: float = 0.25,
) -> Convergence:
    """`targets[i]` holds from `times_s[i]` on; the load changes at `step_s` and stays."""
    after = [(time_s, target) for time_s, target in zip(times_s, targets, strict=True) if time_s >= step_s]
    if not after:
        raise ValueError(f"nothing was recorded after {step_s:g} s")
    last = after[-1][1]
    moves = [b - a for (_, a), (_, b) in pairwise(after) if a != b]
    turns = sum((a > 0) != (b > 0) for a, b in pairwise(moves))
    away = [index for index, (_, target) in enumerate(after) if abs(target - last) > tolerance * last]
    settled_s = after[away[-1] + 1][0] - step_s if away else 0.0
    most = max(target for _, target in after)
    overshoot = most / last - 1.0
    converged = turns <= 1 and settled_s <= within_s and overshoot <= max_overshoot
    return Convergence(after[0][1], last, most, turns, settled_s, overshoot, converged)
