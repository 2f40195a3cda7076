"""Cutting and re-rooting keep trees correct, sibling order intact and distributions with their nodes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.proposers.fitting import fit, reroot

VOCAB_SIZE = 40


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Trees with distinct tokens (so that a token names its node), each inner node with a distribution of its own."""
    size = draw(st.integers(0, 25))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    tree = TokenTree(tuple(range(10, 10 + size)), parents)
    distributions = {
        node: DraftDistribution(tuple(tree.token_ids[c] for c in children), (1.0 / len(children),) * len(children))
        for node, children in tree.children.items()
    }
    hints = tuple(-0.5 * depth - 0.01 * node for node, depth in enumerate(tree.depths))
    return Proposal(100, tree, distributions, hints)


def hint_of(proposal: Proposal, token: int) -> float:
    return proposal.hints[proposal.tree.token_ids.index(token)]


def child_tokens(proposal: Proposal) -> dict[int | None, tuple[int, ...]]:
    """Token of each inner node (None = root) to its children's tokens, in order."""
    tree = proposal.tree
    return {
        None if node == ROOT else tree.token_ids[node]: tuple(tree.token_ids[c] for c in children)
        for node, children in tree.children.items()
    }


def check_distributions(proposal: Proposal, whole: dict[int | None, tuple[int, ...]]) -> None:
    """Every inner node, and no other, has the distribution that it had in the whole tree."""
    tree = proposal.tree
    assert set(proposal.distributions) == set(tree.children)
    for node, distribution in proposal.distributions.items():
        assert distribution.token_ids == whole[None if node == ROOT else tree.token_ids[node]]


@settings(max_examples=150, deadline=None)
@given(proposal=proposals(), budget=st.builds(TreeBudget, st.integers(1, 5), st.integers(1, 4), st.integers(1, 25)))
def test_fit_keeps_first_siblings_within_the_budget(proposal: Proposal, budget: TreeBudget) -> None:
    cut = fit(proposal, budget)
    TokenTree.checked(cut.tree.token_ids, cut.tree.parent_indices, vocab_size=VOCAB_SIZE, max_nodes=budget.max_nodes)
    assert cut.tree.max_depth <= budget.max_depth
    whole = child_tokens(proposal)
    for parent, tokens in child_tokens(cut).items():
        assert len(tokens) <= budget.max_width
        assert whole[parent][: len(tokens)] == tokens  # a beginning: never one from the middle
    check_distributions(cut, whole)
    assert cut.hints == tuple(hint_of(proposal, token) for token in cut.tree.token_ids)
    if fit(proposal, TreeBudget(25, 25, 25)) is not proposal:
        raise AssertionError("a proposal that fits is not copied")


@settings(max_examples=150, deadline=None)
@given(proposal=proposals(), data=st.data())
def test_reroot_keeps_exactly_what_stands_below_the_path(proposal: Proposal, data: st.DataObject) -> None:
    tree = proposal.tree
    node = data.draw(st.integers(-1, len(tree) - 1))
    path = [tree.token_ids[n] for n in tree.path(node)]
    below = reroot(proposal, path)
    assert below is not None
    assert below.base_len == proposal.base_len + len(path)
    descendants = {n for n in range(len(tree)) if n != node and (node == ROOT or node in tree.path(n))}
    assert {tree.token_ids[n] for n in descendants} == set(below.tree.token_ids)
    whole = child_tokens(proposal)
    name = None if node == ROOT else tree.token_ids[node]
    for parent, tokens in child_tokens(below).items():
        assert tokens == whole[name if parent is None else parent]
    for inner, distribution in below.distributions.items():
        assert distribution.token_ids == whole[name if inner == ROOT else below.tree.token_ids[inner]]
    assert set(below.distributions) == set(below.tree.children)
    survived = 0.0 if name is None else hint_of(proposal, name)
    for token in below.tree.token_ids:  # the root has survived: what is left is the rest of the path
        assert hint_of(below, token) == hint_of(proposal, token) - survived
    assert reroot(proposal, [*path, 5]) is None  # no node has token 5
