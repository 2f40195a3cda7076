"""Properties of the growing tree."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from workers.core.proposal import TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.drafting.tree import Candidate, GrowingTree, Node, as_proposal

children = st.lists(
    st.tuples(st.integers(0, 9), st.floats(-3.0, 0.0), st.booleans()), max_size=4, unique_by=lambda c: c[0]
)
budgets = st.builds(TreeBudget, st.integers(0, 6), st.integers(0, 4), st.integers(0, 12))


class TreeMachine(RuleBasedStateMachine):
    """Expand, move the root, prune: the tree stays a tree, and slots are neither lost nor shared."""

    @initialize()
    def plant(self) -> None:
        self.tree = GrowingTree(5, 7)
        self.next_slot = 0
        self.held: set[int] = set()

    @rule(data=st.data(), drawn=children, max_depth=st.integers(0, 5))
    def expand(self, data: st.DataObject, drawn: list[tuple[int, float, bool]], max_depth: int) -> None:
        frontier = self.tree.frontier(max_depth)
        if not frontier:
            return
        node = data.draw(st.sampled_from(frontier))
        assert self.tree.depth(node) < max_depth
        assert node is self.tree.root or not node.terminal
        slot = None
        if node is not self.tree.root:
            slot = self.next_slot
            self.next_slot += 1
            self.held.add(slot)
        self.tree.expand(node, [Candidate(*c) for c in drawn], slot)
        assert node not in self.tree.frontier(99)

    @precondition(lambda self: len(self.tree))
    @rule(data=st.data())
    def reroot(self, data: st.DataObject) -> None:
        nodes = [n for n in self.tree.root.subtree() if n is not self.tree.root]
        node = data.draw(st.sampled_from(nodes))
        below = set(node.subtree()) - {node}
        path = [n.token for n in node.path()]
        matched = self.tree.match([*path, 99])
        assert matched[-1] is node
        freed = self.tree.reroot(node)
        assert len(freed) == len(set(freed))
        self.held -= set(freed)
        assert set(self.tree.root.subtree()) - {node} == below
        assert self.tree.depth(node) == 0

    @rule()
    def prune(self) -> None:
        tokens = [n.token for n in self.tree.root.children]
        self.tree.prune()
        self.held.clear()
        assert [n.token for n in self.tree.root.children] == tokens
        assert len(self.tree) == len(tokens)

    @rule(budget=budgets)
    def list_best(self, budget: TreeBudget) -> None:
        nodes = self.tree.best(budget)
        wire = as_proposal(nodes, self.tree.root, 0).tree
        TokenTree.checked(wire.token_ids, wire.parent_indices, vocab_size=10, max_nodes=budget.max_nodes)
        assert wire.max_depth <= budget.max_depth
        listed = set(nodes)
        for node in nodes:
            assert node.parent is not None
            assert node.parent is self.tree.root or node.parent in listed
            rank = node.parent.children.index(node)
            assert rank < budget.max_width
            assert set(node.parent.children[:rank]) <= listed, "an earlier sibling was cut before a later one"
        assert wire.children.keys() <= {ROOT, *range(len(nodes))}

    @invariant()
    def books(self) -> None:
        self.tree.check_invariants()
        assert set(self.tree.slots()) == self.held


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_the_best_nodes_are_listed_best_first() -> None:
    tree = GrowingTree(0, 0)
    tree.expand(tree.root, [Candidate(1, math.log(0.6)), Candidate(2, math.log(0.3))])
    first = tree.root.children[0]
    tree.expand(first, [Candidate(3, math.log(0.9)), Candidate(4, math.log(0.1))], 0)
    assert [n.token for n in tree.best(TreeBudget(2, 2, 9))] == [1, 3, 2, 4]
    assert [n.token for n in tree.best(TreeBudget(2, 2, 3))] == [1, 3, 2]
    assert [n.token for n in tree.best(TreeBudget(1, 2, 9))] == [1, 2]
    assert [n.token for n in tree.best(TreeBudget(2, 1, 9))] == [1, 3]
    assert [n.token for n in tree.frontier(2)] == [2]
    assert [n.token for n in tree.frontier(3)] == [3, 2, 4]


def test_expanding_twice_is_refused() -> None:
    tree = GrowingTree(0, 0)
    tree.expand(tree.root, [])
    with pytest.raises(ValueError, match="expanded already"):
        tree.expand(tree.root, [])


@given(st.lists(st.floats(-5.0, 0.0), min_size=1, max_size=6))
def test_a_later_sibling_never_ranks_above_an_earlier_one(log_survivals: list[float]) -> None:
    tree = GrowingTree(0, 0)
    tree.expand(tree.root, [Candidate(i, s) for i, s in enumerate(log_survivals)])
    tree.check_invariants()
    assert [n.token for n in tree.best(TreeBudget(1, 9, 9))] == list(range(len(log_survivals)))


def test_survival_does_not_vanish_over_a_long_answer() -> None:
    tree = GrowingTree(0, 0)
    for _ in range(3000):
        tree.expand(tree.root, [Candidate(1, math.log(0.3)), Candidate(2, math.log(0.1))])
        tree.reroot(tree.root.children[0])
    tree.expand(tree.root, [Candidate(1, math.log(0.3)), Candidate(2, math.log(0.1))])
    best: list[Node] = tree.best(TreeBudget(1, 2, 2))
    assert best[0].log_survival - tree.root.log_survival == pytest.approx(math.log(0.3), abs=1e-6)
