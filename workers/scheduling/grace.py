"""How long a step may wait for proposals that are not in yet (a pure function).

Plain decoding emits one token in `plain_step_ms`. Waiting w for a tree emits, on average, `acceptance_length` tokens in
w + `tree_step_ms`. Waiting pays while

    acceptance_length / (w + tree_step_ms)  >  1 / plain_step_ms
    w  <  acceptance_length * plain_step_ms - tree_step_ms

A step serves several requests: those that would not gain (no proposal can come for them) count with zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["StepEstimates", "grace_ms"]


@dataclass(frozen=True)
class StepEstimates:
    """Running averages of one verifier."""

    plain_step_ms: float
    tree_step_ms: float
    acceptance_length: float


def grace_ms(forced: Sequence[bool | None], estimates: StepEstimates, max_grace_ms: float) -> float:
    """Milliseconds that this step may wait.

    `forced` has one entry per decoding request: True = the client asked to speculate always (speculation `on`),
    False = the server decides (`auto`), None = no proposal is wanted.
    """
    if any(forced):
        return max_grace_ms
    hopeful = sum(f is not None for f in forced)
    if not hopeful:
        return 0.0
    gain = estimates.acceptance_length * estimates.plain_step_ms - estimates.tree_step_ms
    return min(max(gain, 0.0) * hopeful / len(forced), max_grace_ms)
