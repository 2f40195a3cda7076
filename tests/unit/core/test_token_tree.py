"""The token tree: what is refused, and properties of everything derived from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.errors import ProtocolViolationError
from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree

VOCAB = 50


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(draw(st.integers(0, 12))):
        parent = draw(st.integers(ROOT, node - 1))
        taken = {tokens[i] for i in range(node) if parents[i] == parent}
        tokens.append(draw(st.integers(0, VOCAB - 1).filter(lambda t, taken=taken: t not in taken)))
        parents.append(parent)
    return TokenTree.checked(tokens, parents, vocab_size=VOCAB, max_nodes=12)


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([1, 2], [-1], "2 tokens but 1 parents"),
        ([1, 2, 3], [-1, 0, 1], "3 nodes, the budget is 2"),
        ([1, 2], [-1, 1], "node 1: parent 1 does not stand before it"),
        ([1, 2], [1, 0], "node 0: parent 1"),
        ([1], [-2], "node 0: parent -2"),
        ([50], [-1], "token 50 is not below the vocabulary size 50"),
        ([-1], [-1], "token -1"),
        ([4, 4], [-1, -1], "a sibling already has token 4"),
    ],
)
def test_broken_trees_are_refused(tokens: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ProtocolViolationError, match=message):
        TokenTree.checked(tokens, parents, vocab_size=VOCAB, max_nodes=2)


@given(trees())
def test_paths_depths_and_children_agree(tree: TokenTree) -> None:
    for node in range(len(tree)):
        path = tree.path(node)
        assert len(path) == tree.depths[node]
        assert path[-1] == node
        assert [tree.parent_indices[n] for n in path] == [ROOT, *path[:-1]]
        assert tree.child_with_token(tree.parent_indices[node], tree.token_ids[node]) == node
    assert sorted(n for nodes in tree.children.values() for n in nodes) == list(range(len(tree)))


@given(trees(), st.integers(0, 12), st.integers(0, 6))
def test_a_prefix_is_a_tree_within_its_limits(tree: TokenTree, max_nodes: int, max_depth: int) -> None:
    cut = tree.prefix(max_nodes, max_depth)
    again = TokenTree.checked(cut.token_ids, cut.parent_indices, vocab_size=VOCAB, max_nodes=max_nodes)
    assert again.max_depth <= max_depth
    words = {tuple(tree.token_ids[n] for n in tree.path(node)) for node in range(len(tree))}
    assert {tuple(cut.token_ids[n] for n in cut.path(node)) for node in range(len(cut))} <= words


@given(trees(), st.data())
def test_below_keeps_exactly_the_continuations(tree: TokenTree, data: st.DataObject) -> None:
    node = data.draw(st.integers(ROOT, len(tree) - 1))
    below, kept = tree.below(node)
    prefix = tree.path(node)
    expected = [n for n in range(len(tree)) if n != node and tree.path(n)[: len(prefix)] == prefix]
    assert list(kept) == expected
    assert below.token_ids == tuple(tree.token_ids[n] for n in expected)
    assert [len(below.path(i)) for i in range(len(below))] == [tree.depths[n] - len(prefix) for n in expected]


@given(trees(), st.integers(0, 12), st.integers(0, 6))
def test_cutting_a_proposal_keeps_the_distributions_of_inner_nodes(tree: TokenTree, nodes: int, depth: int) -> None:
    distributions = {
        node: DraftDistribution(tuple(tree.token_ids[c] for c in children), (1 / len(children),) * len(children))
        for node, children in tree.children.items()
    }
    proposal = Proposal(10, tree, distributions)
    proposal.check_distributions(VOCAB)
    cut = proposal.prefix(TreeBudget(depth, 12, nodes))
    cut.check_distributions(VOCAB)
    assert set(cut.distributions) == set(cut.tree.children)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (DraftDistribution((), ()), "one probability for each token"),
        (DraftDistribution((1, 2), (1.0,)), "one probability for each token"),
        (DraftDistribution((1, 1), (0.5, 0.5)), "lists a token twice"),
        (DraftDistribution((50,), (1.0,)), "not below the vocabulary size 50"),
        (DraftDistribution((1, 2), (0.9, 0.2)), "sum to 1"),
        (DraftDistribution((1, 2), (1.2, -0.2)), r"in \(0, 1\]"),
        (DraftDistribution((1, 2), (float("nan"), 0.5)), r"in \(0, 1\]"),
        (DraftDistribution((2,), (1.0,)), "probability zero in its own distribution"),
    ],
)
def test_broken_distributions_are_refused(distribution: DraftDistribution, message: str) -> None:
    proposal = Proposal(3, TokenTree.chain([1]), {ROOT: distribution})
    with pytest.raises(ProtocolViolationError, match=message):
        proposal.check_distributions(VOCAB)


def test_a_missing_distribution_is_named() -> None:
    with pytest.raises(ProtocolViolationError, match="node 0 has children but no draft distribution"):
        Proposal(3, TokenTree.chain([1, 2]), {ROOT: DraftDistribution((1,), (1.0,))}).check_distributions(VOCAB)
