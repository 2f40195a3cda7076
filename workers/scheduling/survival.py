"""How likely each proposed node is to be accepted: calibrated by what was accepted before.

The survival of a node is the product, along its path, of the probability that a node is accepted if its parent is. That
probability comes from the proposer's hint, corrected by how often hints of that size came true at that depth, or, where
there is no hint, from how often nodes of that depth and sibling number were accepted. One factor for each request
covers what is special about its text.

Nothing here looks at a token. An estimate depends on depth, sibling number, the proposer's hint (which under the rule
`rejection` must not depend on the node's own token) and on nodes that were verified before.
"""

import math
from dataclasses import dataclass, field

from workers.core.proposal import Proposal
from workers.core.token_tree import ROOT

__all__ = ["Conditionals", "RequestFactor", "SurvivalModel", "conditionals_of", "survivals_of"]

MAX_DEPTH, MAX_RANK = 6, 7  # deeper nodes and later siblings share cells
HINT_BINS = 10
MEMORY = 0.995  # what a cell keeps at each trial: it remembers about 200
GUESS_TRIALS, HINT_TRIALS, SHALLOWER_TRIALS = 4.0, 8.0, 16.0  # what a guess, a hint, the depth above count for
FIRST_GUESS, LATER_GUESS = 0.5, 0.3  # of a first child, and by how much each later one is less likely
FACTOR_TRIALS, FACTOR_MEMORY = 6.0, 0.98
MIN_FACTOR, MAX_FACTOR = 0.02, 2.0


@dataclass(frozen=True)
class Conditionals:
    """One proposal, node by node: depth, sibling number (0 = first), hint if its parent is accepted."""

    parents: tuple[int, ...]
    depths: tuple[int, ...]
    ranks: tuple[int, ...]
    hints: tuple[float | None, ...]


def conditionals_of(proposal: Proposal) -> Conditionals:
    tree, hints = proposal.tree, proposal.hints
    ranks = [0] * len(tree)
    for children in tree.children.values():
        for rank, child in enumerate(children):
            ranks[child] = rank
    conditional: tuple[float | None, ...] = (None,) * len(tree)
    if hints:
        parents = (0.0 if parent == ROOT else hints[parent] for parent in tree.parent_indices)
        conditional = tuple(math.exp(min(0.0, h - p)) for h, p in zip(hints, parents, strict=True))
    return Conditionals(tree.parent_indices, tree.depths, tuple(ranks), conditional)


@dataclass
class RequestFactor:
    """Accepted against expected acceptances of one request, shrunk towards 1."""

    accepted: float = 0.0
    expected: float = 0.0

    def record(self, expected: float, accepted: bool) -> None:
        self.expected = FACTOR_MEMORY * self.expected + expected
        self.accepted = FACTOR_MEMORY * self.accepted + accepted

    @property
    def value(self) -> float:
        ratio = (self.accepted + FACTOR_TRIALS / 2) / (self.expected + FACTOR_TRIALS / 2)
        return min(max(ratio, MIN_FACTOR), MAX_FACTOR)


Cell = tuple[str, bool, int, int]  # kind, hinted, depth, sibling number or bin of the hint


@dataclass
class SurvivalModel:
    """Acceptance by cell. `kind` keeps apart what hints mean different things for, such as verification rules."""

    cells: dict[Cell, tuple[float, float]] = field(default_factory=dict)  # trials, accepted

    def conditional(self, kind: str, depth: int, rank: int, hint: float | None) -> float:
        """Probability that a node is accepted if its parent is."""
        cell = _cell(kind, depth, rank, hint)
        trials, accepted = self.cells.get(cell, (0.0, 0.0))
        guess, weight = hint, HINT_TRIALS
        if guess is None:
            guess, weight = FIRST_GUESS * LATER_GUESS ** cell[3], GUESS_TRIALS
            shallower = self.cells.get((kind, False, cell[2] - 1, cell[3]))
            if shallower is not None:
                guess = (shallower[1] + GUESS_TRIALS * guess) / (shallower[0] + GUESS_TRIALS)
                weight = SHALLOWER_TRIALS
        return (accepted + weight * guess) / (trials + weight)

    def observe(self, kind: str, depth: int, rank: int, hint: float | None, accepted: bool) -> None:
        """A node whose parent was accepted has been verified."""
        cell = _cell(kind, depth, rank, hint)
        trials, hits = self.cells.get(cell, (0.0, 0.0))
        self.cells[cell] = (MEMORY * trials + 1.0, MEMORY * hits + accepted)

    def learn(
        self, kind: str, shape: Conditionals, decided: set[int], accepted: set[int], factor: RequestFactor
    ) -> float:
        """Count the verified nodes whose parent is in `decided`: the walk chose among that parent's children.

        Returns how many of them were expected to be accepted.
        """
        total = 0.0
        for node, parent in enumerate(shape.parents):
            if parent in decided:
                depth, rank, hint = shape.depths[node], shape.ranks[node], shape.hints[node]
                expected = self.conditional(kind, depth, rank, hint)
                total += expected
                factor.record(expected, node in accepted)
                self.observe(kind, depth, rank, hint, node in accepted)
        return total


def survivals_of(model: SurvivalModel, kind: str, shape: Conditionals, factor: float) -> tuple[float, ...]:
    """Survival of each node, never above its parent's or an elder sibling's."""
    survivals: list[float] = []
    elder: dict[int, float] = {}
    for parent, depth, rank, hint in zip(shape.parents, shape.depths, shape.ranks, shape.hints, strict=True):
        above = 1.0 if parent == ROOT else survivals[parent]
        survival = above * min(1.0, factor * model.conditional(kind, depth, rank, hint))
        survival = min(survival, elder.get(parent, survival))
        elder[parent] = survival
        survivals.append(survival)
    return tuple(survivals)


def _cell(kind: str, depth: int, rank: int, hint: float | None) -> Cell:
    if hint is None:
        return kind, False, min(depth, MAX_DEPTH), min(rank, MAX_RANK)
    return kind, True, min(depth, MAX_DEPTH), min(int(hint * HINT_BINS), HINT_BINS - 1)
