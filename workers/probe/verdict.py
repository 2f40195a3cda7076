"""From what was measured to a recommendation. Pure functions.

A step over the trees of `c` requests costs `verify_ms(c * (1 + nodes)) + draft_ms(c)` and yields `c * length` tokens;
a plain step costs `verify_ms(c)` and yields `c`. Their ratio is the predicted speed-up (Leviathan et al. 2023,
section 3.3, with a measured cost curve in place of a constant).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.probe.findings import Acceptance, Cost, Findings, Speed, Tree, step_ms_at

__all__ = ["Verdict", "judge", "predicted_speedup"]

WORTH_IT = 1.05  # a smaller gain is lost in noise and operations
LEAST_LENGTH = 1.05  # tokens a step; with fewer, a gain was noise
LOW_ACCEPTANCE = 0.4  # share of trees of which a first node is accepted; below it speculation normally does not pay
HEAVY_DRAFT = 0.5  # of a plain step


@dataclass(frozen=True)
class Verdict:
    """About one proposer at one temperature and number of concurrent requests."""

    proposer: str
    temperature: float
    concurrency: int
    worth_it: bool
    speedup: float  # measured, of the recommended tree
    tree: Tree
    reason: str


def predicted_speedup(acceptance: Acceptance, cost: Cost, concurrency: int) -> float:
    """What acceptance and costs promise for `concurrency` requests at a time."""
    plain = step_ms_at(cost.verify_ms, concurrency)
    rows = concurrency * (1 + acceptance.nodes_per_step)
    step = step_ms_at(cost.verify_ms, rows) + cost.draft_ms(acceptance.proposer, acceptance.tree, concurrency)
    return acceptance.length * plain / step


def judge(findings: Findings) -> list[Verdict]:
    """For each proposer, temperature and number of requests: the best tree that was measured, and whether it pays."""
    groups: dict[tuple[str, float, int], list[Speed]] = {}
    for speed in findings.speeds:
        groups.setdefault((speed.proposer, speed.temperature, speed.concurrency), []).append(speed)
    return [_judge(group, findings) for group in groups.values()]


def _judge(speeds: Sequence[Speed], findings: Findings) -> Verdict:
    best = max(speeds, key=lambda speed: speed.measured)
    acceptance = next(
        a
        for a in findings.acceptances
        if (a.proposer, a.tree, a.temperature) == (best.proposer, best.tree, best.temperature)
    )
    worth_it = best.measured >= WORTH_IT and acceptance.length >= LEAST_LENGTH
    return Verdict(
        best.proposer,
        best.temperature,
        best.concurrency,
        worth_it,
        best.measured,
        best.tree,
        _reason(best, acceptance, findings.cost, worth_it=worth_it),
    )


def _reason(speed: Speed, acceptance: Acceptance, cost: Cost, *, worth_it: bool) -> str:
    rows = speed.concurrency * (1 + acceptance.nodes_per_step)
    plain = step_ms_at(cost.verify_ms, speed.concurrency)
    growth = step_ms_at(cost.verify_ms, rows) / plain
    draft = cost.draft_ms(speed.proposer, speed.tree, speed.concurrency) / plain
    facts = f"{acceptance.length:.2f} tokens a step that costs {growth:.2f}x a plain one, and {draft:.2f}x for drafting"
    if worth_it:
        return facts
    if acceptance.rates and acceptance.rates[0] < LOW_ACCEPTANCE:
        return f"in {1 - acceptance.rates[0]:.0%} of the steps with a tree none of its first nodes is accepted: {facts}"
    if draft > HEAVY_DRAFT:
        return f"the draft costs too much for this target: {facts}"
    if growth > acceptance.length:
        return f"this many rows already use all the arithmetic there is: {facts}"
    return facts
