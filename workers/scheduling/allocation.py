"""Which proposed nodes one step verifies: a pure function of a snapshot.

A step that feeds `rows` tokens and takes `ms(rows)` is expected to emit one token for each request, plus each verified
node's survival probability. Nodes of all requests are taken in order of survival while each improves

    goodput = expected tokens / expected ms

Costs are convex and survivals fall, so the first node that does not pay ends the list and the result is the best one
of its kind. This also keeps the rule `rejection` exact: a node's fate follows from nodes that rank before it, and its
descendants and younger siblings, whose survival may depend on its token, all rank behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.scheduling.step_cost import StepCost, StepLoad

__all__ = ["MIN_SURVIVAL", "Offer", "StepDecision", "StepSnapshot", "decide"]

MIN_SURVIVAL = 0.02  # what is less likely is not worth a row, even where rows seem to cost nothing


@dataclass(frozen=True)
class Offer:
    """The proposal of one request: survival of each node, never above its parent's or an elder sibling's.

    `forced`: the client wants all of it verified, whether it pays or not.
    """

    survivals: tuple[float, ...]
    forced: bool = False


@dataclass(frozen=True)
class StepSnapshot:
    """All that the decision depends on. `load` is the step without any tree."""

    load: StepLoad
    tokens: float  # expected without any tree: the number of requests that decode
    cost: StepCost
    max_nodes: int  # room in the step
    offers: tuple[Offer, ...]


@dataclass(frozen=True)
class StepDecision:
    """`nodes[i]`: what is verified of `offers[i]`, ascending."""

    nodes: tuple[tuple[int, ...], ...]
    tokens: float  # expected
    ms: float  # expected

    @property
    def num_nodes(self) -> int:
        return sum(map(len, self.nodes))


def decide(snapshot: StepSnapshot) -> StepDecision:
    """See the module."""
    chosen: list[list[int]] = [[] for _ in snapshot.offers]
    tokens, room = snapshot.tokens, snapshot.max_nodes
    for i, offer in enumerate(snapshot.offers):
        if offer.forced:
            chosen[i] = list(range(min(len(offer.survivals), room)))
            room -= len(chosen[i])
            tokens += sum(offer.survivals[n] for n in chosen[i])
    load = snapshot.load.with_rows(snapshot.max_nodes - room)
    ranked = _ranked(snapshot.offers, _floor(snapshot, load, tokens))[: max(room, 0)]
    ms = snapshot.cost.ms_by_rows(load, len(ranked))
    taken = 0
    for negative, i, node in ranked:
        better = (tokens - negative) * ms[taken] > tokens * ms[taken + 1]
        if not better:
            break
        tokens -= negative
        taken += 1
        chosen[i].append(node)
    return StepDecision(tuple(tuple(sorted(nodes)) for nodes in chosen), tokens, ms[taken])


def _floor(snapshot: StepSnapshot, load: StepLoad, tokens: float) -> float:
    """No node whose survival is not above it can pay: the first row is the cheapest and goodput only grows."""
    before, after = snapshot.cost.ms_by_rows(load, 1)
    return max(MIN_SURVIVAL, 0.999 * tokens * (after - before) / before if before > 0.0 else 0.0)


def _ranked(offers: Sequence[Offer], floor: float) -> list[tuple[float, int, int]]:
    """(-survival, offer, node), best first; of equals, parents and elder siblings (lower numbers) come first."""
    return sorted(
        (-survival, i, node)
        for i, offer in enumerate(offers)
        if not offer.forced
        for node, survival in enumerate(offer.survivals)
        if survival > floor
    )
