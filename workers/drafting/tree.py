"""The tree that grows below the last committed token of one session.

    root ── the ─┬─ cat ── sat        drawn: a token that may be proposed
              │  └─ dog               expanded: its children are drawn, its K/V sits in a slot
              └─ a                    frontier: drawn, not expanded

A commit moves the root down (`reroot`): the subtree below it survives, all else dies and gives its slots back. Nodes
keep absolute positions and log survival probabilities, so that nothing in a surviving subtree has to be rewritten.

Exactness under the rule `rejection`: whether a node is *listed* in a proposal must not depend on the token that was
drawn for it. Nodes are listed in the order of `log_survival`, which for a drawn sibling is a function of its parent's
distribution and of its rank only (`workers.drafting.expansion`), never exceeds the parent's or an earlier sibling's,
and so cannot be influenced by the node itself, by later siblings or by descendants.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.drafting.invariants import require

__all__ = ["Candidate", "GrowingTree", "Node", "as_proposal", "slot_of"]


@dataclass(frozen=True)
class Candidate:
    """A child to draw: its token, and the log probability that it survives if its parent does."""

    token: int
    log_survival: float
    terminal: bool = False  # ends the text: never worth expanding


@dataclass(eq=False, slots=True)
class Node:
    """One token of the tree. Identity is the object itself."""

    token: int
    position: int  # index in the sequence; the root's is number of committed tokens - 1
    parent: "Node | None"
    log_survival: float  # natural log, along the path from the first root
    order: int  # of creation, breaks ties
    # Sorting by rank is best first, parents before children and earlier siblings before later ones.
    rank: tuple[float, int] = field(init=False)
    terminal: bool = False
    slot: int | None = None  # scratch slot of its K/V; None for the root (it lives in the context) and the frontier
    expanded: bool = False
    children: list["Node"] = field(default_factory=list)
    distribution: DraftDistribution | None = None  # what the children were drawn from, rule `rejection` only

    def __post_init__(self) -> None:
        self.rank = (-self.log_survival, self.order)

    def path(self) -> list["Node"]:
        """Nodes below the root, down to this one; [] for the root itself."""
        path: list[Node] = []
        node = self
        while node.parent is not None:
            path.append(node)
            node = node.parent
        path.reverse()
        return path

    def subtree(self) -> Iterator["Node"]:
        """This node and all below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)


class GrowingTree:
    """All drawn nodes of one session."""

    def __init__(self, root_token: int, position: int) -> None:
        self.root = Node(root_token, position, None, 0.0, 0)
        self._created = 1
        self._nodes: list[Node] = []  # all but the root, best first

    def __len__(self) -> int:
        return len(self._nodes)

    def depth(self, node: Node) -> int:
        """Children of the root have depth 1."""
        return node.position - self.root.position

    def expand(
        self,
        node: Node,
        candidates: Sequence[Candidate],
        slot: int | None = None,
        distribution: DraftDistribution | None = None,
    ) -> None:
        """Draw the children of a frontier node, best or first drawn first; `slot` holds the node's K/V from now on."""
        if node.expanded:
            raise ValueError("the node is expanded already")
        node.expanded, node.slot, node.distribution = True, slot, distribution
        bound = 0.0
        for candidate in candidates:
            bound = min(bound, candidate.log_survival)
            child = Node(
                candidate.token,
                node.position + 1,
                node,
                node.log_survival + bound,
                self._created,
                candidate.terminal,
            )
            self._created += 1
            node.children.append(child)
            self._nodes.append(child)
        self._nodes.sort(key=_rank)

    def frontier(self, max_depth: int) -> list[Node]:
        """Nodes that can be expanded so that no child is deeper than `max_depth`; best first. The root comes alone."""
        if not self.root.expanded:
            return [self.root] if max_depth >= 1 else []
        limit = self.root.position + max_depth
        return [n for n in self._nodes if not n.expanded and not n.terminal and n.position < limit]

    def best(self, budget: TreeBudget) -> list[Node]:
        """The most probable drawn nodes within the budget, best first: closed under parents and earlier siblings."""
        limit = self.root.position + budget.max_depth
        too_wide: set[Node] = set()
        listed: list[Node] = []
        for node in self._nodes:
            if len(listed) == budget.max_nodes:
                break
            parent = node.parent
            if node.position > limit or parent is None:
                continue
            if parent in too_wide or node in parent.children[budget.max_width :]:
                too_wide.add(node)
            else:
                listed.append(node)
        return listed

    def match(self, token_ids: Sequence[int]) -> list[Node]:
        """The longest path below the root that spells a prefix of `token_ids`."""
        path: list[Node] = []
        node = self.root
        for token in token_ids:
            found = next((c for c in node.children if c.token == token), None)
            if found is None:
                break
            path.append(found)
            node = found
        return path

    def reroot(self, new_root: Node) -> list[int]:
        """Make a drawn node the root; returns the slots that are no longer needed, the new root's included."""
        survivors = set(new_root.subtree())
        freed = [n.slot for n in self._nodes if n.slot is not None and (n not in survivors or n is new_root)]
        self._nodes = [n for n in self._nodes if n in survivors and n is not new_root]
        new_root.parent, new_root.slot = None, None
        self.root = new_root
        return freed

    def prune(self) -> None:
        """Keep the root and its children only; their slots are no longer needed."""
        for child in self.root.children:
            child.expanded, child.slot, child.distribution = False, None, None
            child.children.clear()
        self._nodes = list(self.root.children)

    def slots(self) -> list[int]:
        """Scratch slots in use."""
        return [n.slot for n in self._nodes if n.slot is not None]

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless the tree is one."""
        reached = list(self.root.subtree())
        require(self.root.parent is None and self.root.slot is None, "the root has a parent or a scratch slot")
        require(len(reached) == len(self) + 1, "nodes are lost or reached twice")
        require(set(reached) == {self.root, *self._nodes}, "the list of nodes is not what the root reaches")
        require(len(set(self.slots())) == len(self.slots()), "two nodes share a slot")
        for node in reached:
            require(
                node is self.root or node.expanded == (node.slot is not None), "expanded nodes, and only they, have K/V"
            )
            require(node.expanded or not node.children, "a node has children but is not expanded")
            ranks = [child.rank for child in node.children]
            require(ranks == sorted(ranks), "a later sibling ranks above an earlier one")
            require(len({child.token for child in node.children}) == len(node.children), "siblings share a token")
            for child in node.children:
                require(
                    child.parent is node and child.position == node.position + 1, "a child does not follow its parent"
                )
                require(child.rank > node.rank, "a child ranks above its parent")


def _rank(node: Node) -> tuple[float, int]:
    return node.rank


def slot_of(node: Node) -> int:
    """Of an expanded node below the root."""
    if node.slot is None:
        raise ValueError("the node has no K/V")
    return node.slot


def as_proposal(nodes: Sequence[Node], root: Node, base_len: int) -> Proposal:
    """What is proposed when `nodes` are listed (parents before children); distributions where the rule has them."""
    index = {root: ROOT} | {node: i for i, node in enumerate(nodes)}
    tree = TokenTree(
        tuple(node.token for node in nodes), tuple(index[node.parent] for node in nodes if node.parent is not None)
    )
    inner = {number: root if number == ROOT else nodes[number] for number in tree.children}
    distributions = {number: node.distribution for number, node in inner.items() if node.distribution is not None}
    hints = tuple(node.log_survival - root.log_survival for node in nodes)
    return Proposal(base_len, tree, distributions, hints)
