"""`UnionProposer`: the trees of a proposer, united with what prompt lookup finds (`ngram.combine`).

Lookup costs nothing and is sure of itself where a text repeats; the other proposer guesses everywhere. Lookup gets up
to half of the nodes and of the width; what it does not use is the other's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workers.core.proposal import Proposal, TreeBudget
from workers.core.sampling_params import VerificationRule
from workers.core.token_tree import ROOT, TokenTree
from workers.proposers.base import CommitUpdate, DraftSession, Proposer, ReportsArrivals, Want
from workers.proposers.ngram import NgramProposer
from workers.proposers.target_access import DraftsWithTarget, TargetAccess

__all__ = ["UnionProposer", "unite"]

# Log probabilities that a looked-up token survives if its parent does: the first, and one behind a looked-up token. A
# guess, where the other proposer has hints: the verifier calibrates what it is told.
_FIRST, _LATER = math.log(0.5), math.log(0.8)


class UnionProposer:
    """A `Proposer` made of two."""

    def __init__(self, first: Proposer, lookup: NgramProposer) -> None:
        self.in_process = first.in_process
        self.first = first
        self._lookup = lookup
        self._drawn: dict[int, bool] = {}  # whether the other's children are draws that must not be meddled with

    def attach(self, target: TargetAccess) -> None:
        """See `DraftsWithTarget`."""
        if isinstance(self.first, DraftsWithTarget):
            self.first.attach(target)

    def open(self, session: DraftSession) -> None:
        request = session.request
        self._drawn[session.key] = request.rule is VerificationRule.REJECTION and not request.sampling.greedy
        self.first.open(session)
        self._lookup.open(session)

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        self.first.wait(wants, timeout_s)

    def due(self, wants: Mapping[int, Want]) -> dict[int, tuple[float | None, float]]:
        """See `ReportsArrivals`. Lookup is there at once; the other is worth the same wait as alone."""
        return self.first.due(wants) if isinstance(self.first, ReportsArrivals) else {}

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        halves = {key: replace(want, budget=_half(want.budget)) for key, want in wants.items()}
        found = self._lookup.collect(halves)
        trees = {key: found[key].tree if key in found else TokenTree.empty() for key in wants}
        drafted = self.first.collect({key: _narrower(want, trees[key]) for key, want in wants.items()})
        alone = {key: want for key, want in wants.items() if key not in drafted}
        united = {
            key: unite(proposal, trees[key], wants[key].budget, drawn=self._drawn.get(key, True))
            for key, proposal in drafted.items()
        }
        return {**self._lookup.collect(alone), **united}

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        self.first.commit(updates)
        self._lookup.commit(updates)

    def close(self, key: int) -> None:
        self._drawn.pop(key, None)
        self.first.close(key)
        self._lookup.close(key)

    def flush(self) -> None:
        self.first.flush()

    def shutdown(self) -> None:
        self.first.shutdown()
        self._lookup.shutdown()


def _half(budget: TreeBudget) -> TreeBudget:
    return TreeBudget(budget.max_depth, max(1, budget.max_width // 2), budget.max_nodes // 2)


def _narrower(want: Want, lookup: TokenTree) -> Want:
    """Leave room for the looked-up children of a node beside the other's."""
    widest = max(map(len, lookup.children.values()), default=0)
    return replace(want, budget=replace(want.budget, max_width=max(1, want.budget.max_width - widest)))


def unite(first: Proposal, lookup: TokenTree, budget: TreeBudget, *, drawn: bool) -> Proposal:
    """`first` with the nodes of `lookup` that it lacks, within the nodes and the width of `budget`.

    `drawn`: children in `first` are draws, and `rejection` must stay exact. Looked-up tokens then stand behind all
    drawn siblings and are tried as point masses (`Proposal.certain`): which of them are there may depend on the draws,
    as those are refused by the time they are tried. Whether a draw is kept does not depend on its own token
    (`_affordable`).
    """
    if not len(lookup):
        return first
    kept = first.select(range(_affordable(first.tree, lookup, budget.max_nodes)))
    tokens, parents = list(kept.tree.token_ids), list(kept.tree.parent_indices)
    hints = list(kept.hints)
    children: dict[int, list[int]] = {node: list(nodes) for node, nodes in kept.tree.children.items()}
    place: dict[int, int] = {ROOT: ROOT}  # of lookup's nodes in the union; those that found no room are absent
    for node, (token, above) in enumerate(zip(lookup.token_ids, lookup.parent_indices, strict=True)):
        if above not in place:
            continue
        parent = place[above]
        siblings = children.setdefault(parent, [])
        same = next((s for s in siblings if tokens[s] == token), None)
        hint = (hints[parent] if parent != ROOT and hints else 0.0) + (_FIRST if above == ROOT else _LATER)
        if same is not None:
            place[node] = same
            if hints and not drawn:
                hints[same] = max(hints[same], hint)
        elif len(siblings) < budget.max_width and len(tokens) < budget.max_nodes:
            place[node] = len(tokens)
            if kept.hints:
                hints.append(min([hint, *(hints[s] for s in siblings)]) if drawn else hint)
            siblings.append(len(tokens))
            tokens.append(token)
            parents.append(parent)
    certain = frozenset(range(len(kept.tree), len(tokens)))
    united = Proposal(
        first.base_len, TokenTree(tuple(tokens), tuple(parents)), kept.distributions, tuple(hints), certain
    )
    return _best_first(united, drawn) if hints else united


def _affordable(tree: TokenTree, lookup: TokenTree, max_nodes: int) -> int:
    """How many of the first nodes of `tree` fit beside `lookup`.

    A node needs room for one more even where `lookup` has it too: otherwise its own token would decide about it, and
    `rejection` would not be exact.
    """
    used, same = len(lookup), {ROOT: ROOT}
    for node, (token, parent) in enumerate(zip(tree.token_ids, tree.parent_indices, strict=True)):
        if used >= max_nodes:
            return node
        twin = lookup.child_with_token(same[parent], token) if parent in same else None
        if twin is None:
            used += 1
        else:
            same[node] = twin
    return len(tree)


def _best_first(proposal: Proposal, drawn: bool) -> Proposal:
    """Nodes in the order of their hints, so that a smaller budget keeps the best; draws of a node stay in order."""
    hints: list[float] = []
    least: dict[int, float] = {}  # of the children so far
    for hint, parent in zip(proposal.log_survival, proposal.tree.parent_indices, strict=True):
        above = least.get(parent, math.inf) if drawn else math.inf
        hints.append(min(hint, above, hints[parent] if parent != ROOT else 0.0))
        least[parent] = hints[-1]
    order = sorted(range(len(hints)), key=lambda node: -hints[node])
    index = {ROOT: ROOT} | {old: new for new, old in enumerate(order)}
    tree = TokenTree(
        tuple(proposal.tree.token_ids[old] for old in order),
        tuple(index[proposal.tree.parent_indices[old]] for old in order),
    )
    return Proposal(
        proposal.base_len,
        tree,
        {index[node]: distribution for node, distribution in proposal.distributions.items()},
        tuple(hints[old] for old in order),
        frozenset(index[node] for node in proposal.certain),
    )
