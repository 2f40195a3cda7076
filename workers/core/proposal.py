"""A proposal: a token tree for one request, and what it was drafted from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.core.errors import ProtocolViolationError
from workers.core.token_tree import ROOT, TokenTree

__all__ = ["DraftDistribution", "Proposal", "TreeBudget"]

SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class TreeBudget:
    """How large a tree may be. `max_nodes` 0 = no speculation."""

    max_depth: int
    max_width: int
    max_nodes: int

    def within(self, other: "TreeBudget") -> "TreeBudget":
        """The smaller of the two in every respect."""
        return TreeBudget(
            min(self.max_depth, other.max_depth),
            min(self.max_width, other.max_width),
            min(self.max_nodes, other.max_nodes),
        )


@dataclass(frozen=True)
class DraftDistribution:
    """A sparse probability distribution: unlisted tokens have probability zero."""

    token_ids: tuple[int, ...]
    probs: tuple[float, ...]

    def check(self, vocab_size: int) -> None:
        """Raise `ProtocolViolationError` unless it is a distribution over the vocabulary."""
        if len(self.token_ids) != len(self.probs) or not self.token_ids:
            raise ProtocolViolationError("a draft distribution needs one probability for each token, and one at least")
        if len(set(self.token_ids)) != len(self.token_ids):
            raise ProtocolViolationError("a draft distribution lists a token twice")
        if not all(0 <= t < vocab_size for t in self.token_ids):
            raise ProtocolViolationError(f"a draft distribution has a token not below the vocabulary size {vocab_size}")
        if not all(0.0 < p <= 1.0 for p in self.probs) or abs(sum(self.probs) - 1.0) > SUM_TOLERANCE:
            raise ProtocolViolationError("draft probabilities must be in (0, 1] and sum to 1")


@dataclass(frozen=True)
class Proposal:
    """A tree drafted for the first `base_len` committed tokens of a request.

    `distributions` maps each node with children (ROOT included) to the
    distribution that its children were drawn from without replacement, in
    sibling order; it is filled under the rule `rejection` only.

    `log_survival` is a hint: for each node the natural log of the probability
    that it will be accepted, as its proposer sees it; () = it does not say.
    Under `rejection` a node's entry must not depend on its own token.

    `certain` are nodes that were not drawn from their parent's distribution, though it has one: `rejection` tries them
    as point masses. They stand behind their drawn siblings. Never on the wire.
    """

    base_len: int
    tree: TokenTree
    distributions: Mapping[int, DraftDistribution] = field(default_factory=dict)
    log_survival: tuple[float, ...] = ()
    certain: frozenset[int] = frozenset()

    @property
    def hints(self) -> tuple[float, ...]:
        """`log_survival` if it is one number for each node, else (): a wrong hint counts as none."""
        usable = len(self.log_survival) == len(self.tree) and all(map(math.isfinite, self.log_survival))
        return self.log_survival if usable else ()

    def check_distributions(self, vocab_size: int) -> None:
        """Raise `ProtocolViolationError` unless every inner node has a distribution that covers its children."""
        for node, children in self.tree.children.items():
            distribution = self.distributions.get(node)
            if distribution is None:
                name = "the root" if node == ROOT else f"node {node}"
                raise ProtocolViolationError(f"{name} has children but no draft distribution")
            distribution.check(vocab_size)
            listed = set(distribution.token_ids)
            if any(self.tree.token_ids[child] not in listed for child in children):
                raise ProtocolViolationError("a drafted token has probability zero in its own distribution")

    def prefix(self, budget: TreeBudget) -> "Proposal":
        """The part that fits into `budget` (first nodes first; distributions of nodes that keep children).

        Cutting trailing siblings keeps rule `rejection` exact: children are tried in the order they were drawn.
        """
        return self.select([n for n, d in enumerate(self.tree.depths) if d <= budget.max_depth][: budget.max_nodes])

    def select(self, nodes: Sequence[int]) -> "Proposal":
        """The proposal of `nodes` alone: ascending, closed under parents and elder siblings."""
        if len(nodes) == len(self.tree):
            return self
        tree = self.tree.select(nodes)
        index = {ROOT: ROOT} | {old: new for new, old in enumerate(nodes)}
        distributions = {index[n]: d for n, d in self.distributions.items() if n in index and index[n] in tree.children}
        hints = tuple(self.hints[n] for n in nodes if self.hints)
        return Proposal(self.base_len, tree, distributions, hints, frozenset(index[n] for n in self.certain & {*nodes}))
