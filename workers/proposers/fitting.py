"""Cutting proposals to size without making them inexact.

Under the rule `rejection` the children of a node were drawn one after another
without replacement, and verification tries them in that order. Dropping the
*last* children of a node, whole subtrees, or the part of a tree beside a
committed path leaves every remaining node correctly distributed; dropping a
child from the middle would not.
"""

from collections.abc import Sequence

from workers.core.proposal import Proposal, TreeBudget
from workers.core.token_tree import ROOT

__all__ = ["fit", "reroot"]


def reroot(proposal: Proposal, tokens: Sequence[int]) -> Proposal | None:
    """The part below the path `tokens`, which were committed after `base_len`; None if they leave the tree."""
    if not tokens:
        return proposal
    tree, node = proposal.tree, ROOT
    for token in tokens:
        child = tree.child_with_token(node, token)
        if child is None:
            return None
        node = child
    below, kept = tree.below(node)
    index = {node: ROOT} | {old: new for new, old in enumerate(kept)}
    distributions = {
        index[n]: d for n, d in proposal.distributions.items() if n in index and index[n] in below.children
    }
    hints = proposal.hints
    survived = hints[node] if hints and node != ROOT else 0.0
    return Proposal(
        proposal.base_len + len(tokens),
        below,
        distributions,
        tuple(hints[n] - survived for n in kept if hints),
        frozenset(index[n] for n in proposal.certain.intersection(kept)),
    )


def fit(proposal: Proposal, budget: TreeBudget) -> Proposal:
    """The part within `budget`: at most `max_width` children of a node (the first ones), then depth and nodes."""
    tree = proposal.tree
    narrow_enough = all(len(children) <= budget.max_width for children in tree.children.values())
    if narrow_enough:
        fits = len(tree) <= budget.max_nodes and tree.max_depth <= budget.max_depth
        return proposal if fits else proposal.prefix(budget)
    keep: set[int] = {ROOT}
    for node, parent in enumerate(tree.parent_indices):  # parents come first
        if parent in keep and node in tree.children[parent][: budget.max_width]:
            keep.add(node)
    return proposal.select(sorted(keep - {ROOT})).prefix(budget)
