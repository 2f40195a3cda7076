"""What one session contributes to a forward: a piece of its committed tokens, or some nodes of its tree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.draft.session import Session
from workers.drafting.node_chunk import node_chunk
from workers.drafting.tree import Node, slot_of
from workers.kvcache.manager import KvCacheManager

__all__ = ["Expand", "Feed", "Work"]


@dataclass(frozen=True)
class Feed:
    """Compute the K/V of `count` committed tokens; the logits of the root when that is the last of them."""

    session: Session
    count: int

    @property
    def num_tokens(self) -> int:
        return self.count

    @property
    def reaches_root(self) -> bool:
        return self.session.table.num_computed + self.count == self.session.base_len

    def chunk(self) -> SequenceChunk:
        start = self.session.table.num_computed
        end = start + self.count
        slots = self.session.table.slots
        return SequenceChunk(
            token_ids=self.session.tokens[start:end],
            positions=range(start, end),
            slots=slots[start:end],
            context_slots=slots[:start],
            window_slots=slots[start:end],
            mask=causal_mask(self.count),
            logits_for=(self.count - 1,) if self.reaches_root else (),
        )

    def absorb(self, logits: torch.Tensor, manager: KvCacheManager) -> None:
        """Book the computed tokens; draw the root's children if its logits are there ([1, vocab])."""
        session = self.session
        reaches_root = self.reaches_root
        manager.commit(session.table, session.tokens, session.table.num_computed + self.count)
        if reaches_root:
            root = session.tree.root
            [(candidates, distribution)] = session.expander.children(logits, [root], session.budget.max_width)
            session.tree.expand(root, candidates, distribution=distribution)
            session.levels = 1


@dataclass(frozen=True)
class Expand:
    """Compute K/V and logits of frontier nodes; node i writes to scratch slot `slots[i]`."""

    session: Session
    nodes: Sequence[Node]
    slots: Sequence[int]

    @property
    def num_tokens(self) -> int:
        return len(self.nodes)

    def chunk(self) -> SequenceChunk:
        """Each node sees all committed tokens, its ancestors and itself."""
        new = dict(zip(self.nodes, self.slots, strict=True))
        context = self.session.table.slots[: self.session.base_len]
        return node_chunk(self.nodes, lambda node: new[node] if node in new else slot_of(node), context)

    def absorb(self, logits: torch.Tensor, manager: KvCacheManager) -> None:
        """Draw the children of all nodes from `logits` [nodes, vocab]."""
        session = self.session
        drawn = session.expander.children(logits, self.nodes, session.budget.max_width)
        for node, slot, (candidates, distribution) in zip(self.nodes, self.slots, drawn, strict=True):
            session.tree.expand(node, candidates, slot, distribution)
        session.levels += 1


Work = Feed | Expand
