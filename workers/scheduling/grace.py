"""How long a step may wait for proposals that are not in yet (a pure function).

Starting now is expected to emit `tokens` in `ms(rows)`. Waiting w milliseconds until more proposals are in adds the
tokens that they are expected to yield, and their rows. Waiting pays while

    (tokens + gains) / (w + ms(rows + nodes))  >  tokens / ms(rows)

and never longer than until that stops being true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.scheduling.step_cost import StepCost, StepLoad

__all__ = ["Pending", "grace_ms"]

SPREADS = 2.0  # how many mean deviations behind its mean a proposal is still waited for


@dataclass(frozen=True)
class Pending:
    """A proposal that is still to come."""

    gain: float  # tokens that it is expected to add to the step
    nodes: int  # rows that it will add
    due_ms: float | None = None  # from now, on average; None = nothing is known of its drafter
    spread_ms: float = 0.0  # mean deviation of `due_ms`


def grace_ms(tokens: float, load: StepLoad, cost: StepCost, pending: Sequence[Pending], max_grace_ms: float) -> float:
    """Milliseconds that the step may wait. `tokens`, `load`: of the step if it started now."""
    if tokens <= 0.0 or not pending:
        return 0.0
    ms_per_token = cost.ms(load) / tokens
    best, grace = 1.0 / ms_per_token if ms_per_token > 0.0 else float("inf"), 0.0
    rows = 0
    for proposal in sorted(pending, key=lambda p: p.due_ms or 0.0):
        tokens += proposal.gain
        rows += proposal.nodes
        due_ms = max(proposal.due_ms or 0.0, 0.0)
        step_ms = cost.ms(load.with_rows(rows))
        goodput = tokens / (due_ms + step_ms)
        if goodput > best:
            break_even_ms = tokens * ms_per_token - step_ms
            late_ms = break_even_ms if proposal.due_ms is None else due_ms + SPREADS * proposal.spread_ms
            best, grace = goodput, max(grace, min(break_even_ms, late_ms))
    return min(grace, max_grace_ms)
