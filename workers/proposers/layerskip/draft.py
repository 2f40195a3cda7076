"""One request's draft: a tree whose inner nodes have been through layers 1..E, with their K/V in the request's blocks.

    slot of the block table   L-1     L        L+1      L+2 …
    holds                     root    place 0  place 1  place 2       K/V of layers 1..E, for now

A node that is expanded takes the next place; the step computes the remaining layers into the same slots. Leaves have
no place yet: the step gives them the places of expanded nodes that are not proposed, then the ones behind.
"""

import math
from collections.abc import Sequence
from itertools import count

import torch

from workers.attention.forward_context import SequenceChunk
from workers.core.proposal import Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.drafting.expansion import Expander
from workers.drafting.node_chunk import node_chunk
from workers.drafting.tree import GrowingTree, Node, as_proposal, slot_of
from workers.kvcache.block_table import BlockTable
from workers.proposers.target_access import Placement
from workers.runner.model_runner import EarlyOutput, EarlyRows

__all__ = ["EarlyDraft"]


class EarlyDraft:
    """A `TargetDraft` for `base_len` committed tokens, the last of which is `root_token`."""

    def __init__(
        self,
        root_token: int,
        base_len: int,
        budget: TreeBudget,
        blocks: BlockTable,
        expander: Expander,
        min_survival: float,
    ) -> None:
        self.base_len = base_len
        self.blocks = blocks
        self.tree = GrowingTree(root_token, base_len - 1)
        self._budget = budget
        self._expander = expander
        self._floor = math.log(min_survival)
        self._levels = 0  # forwards so far
        self._places = 0  # taken
        self._states: dict[Node, torch.Tensor] = {}  # [hidden_size]

    def wants(self) -> list[Node]:
        """Nodes to expand next, best first; [] when nothing is worth a forward. Decided as by a drafter's session."""
        if self._levels == self._budget.max_depth:
            return []
        floor = self._floor
        listed = self.tree.best(self._budget)
        if len(listed) == self._budget.max_nodes:  # children of less probable nodes cannot enter any more
            floor = max(floor, listed[-1].log_survival)
        beam = -(-self._budget.max_nodes // self._budget.max_depth)
        frontier = self.tree.frontier(self._budget.max_depth)[:beam]
        return [node for node in frontier if node is self.tree.root or node.log_survival > floor]

    def tokens_with(self, num_nodes: int) -> int:
        """Slots that the request needs when so many more nodes are expanded."""
        return self.base_len + self._places + num_nodes

    def room(self) -> int:
        """Nodes that can be expanded in the blocks that are there."""
        return self.blocks.capacity - self.base_len - self._places

    def chunk(self, nodes: Sequence[Node]) -> SequenceChunk:
        """Nodes (or the root alone) for the next forward."""
        slots = self.blocks.slots
        if nodes[0] is self.tree.root:
            own = slots[self.base_len - 1 : self.base_len]
            context = slots[: self.base_len - 1]
            return SequenceChunk([nodes[0].token], [nodes[0].position], own, context, own, None, (0,))
        new = {node: self._places + i for i, node in enumerate(nodes)}
        return node_chunk(
            nodes,
            lambda node: int(slots[self.base_len + (new[node] if node in new else slot_of(node))]),
            slots[: self.base_len],
        )

    def absorb(self, nodes: Sequence[Node], output: EarlyOutput) -> None:
        """Draw the children of the nodes that `chunk` was made of."""
        drawn = self._expander.children(output.logits, nodes, self._budget.max_width)
        for node, state, (candidates, distribution) in zip(nodes, output.states, drawn, strict=True):
            self._states[node] = state
            place = None if node is self.tree.root else self._places
            self.tree.expand(node, candidates, place, distribution)
            self._places += place is not None
        self._levels += 1

    def proposal(self) -> Proposal:
        """The best nodes within the budget."""
        return as_proposal(self.tree.best(self._budget), self.tree.root, self.base_len)

    def placement(self, blocks: BlockTable, base_len: int, tree: TokenTree) -> Placement | None:
        """See `TargetDraft`. Nodes are found by their path, so that `tree` may be cut or united with another."""
        if blocks is not self.blocks or base_len != self.base_len:
            return None
        found = self._find(tree)
        rows = [row for row, node in enumerate(found) if node in self._states]
        if not rows:
            return None
        states = torch.stack([self._states[node] for node in found if node in self._states])
        places = {slot_of(node): node for node in found[1:] if node in self._states}
        free = (place for place in count() if place not in places)
        offsets = tuple(slot_of(node) if node in self._states else next(free) for node in found[1:])
        return Placement(offsets, EarlyRows(rows, states))

    def _find(self, tree: TokenTree) -> list[Node | None]:
        """The root, then for each node of `tree` the drafted node with its path, or None."""
        found: dict[int, Node | None] = {ROOT: self.tree.root}
        for number, (token, parent) in enumerate(zip(tree.token_ids, tree.parent_indices, strict=True)):
            above = found[parent]
            children = above.children if above else ()
            found[number] = next((child for child in children if child.token == token), None)
        return list(found.values())
