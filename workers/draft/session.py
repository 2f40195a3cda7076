"""One request as the drafter sees it: committed tokens, their K/V, the tree below them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.proposal import Proposal, TreeBudget
from workers.core.tracing import NO_SPAN, Span
from workers.draft.scratch import ScratchSlots
from workers.drafting.expansion import Expander
from workers.drafting.invariants import require
from workers.drafting.tree import GrowingTree, Node, as_proposal
from workers.kvcache.block_table import BlockTable
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage

__all__ = ["MAX_BUDGET", "Session", "SessionKey", "SessionLimits"]

MAX_BUDGET = TreeBudget(max_depth=64, max_width=64, max_nodes=1024)  # larger wishes are lowered to it
_LOG_MIN_SURVIVAL = math.log(0.01)  # less probable nodes are not worth a forward


class SessionKey(NamedTuple):
    """Session ids are unique within one stream only."""

    stream: int
    session_id: int


@dataclass(frozen=True)
class SessionLimits:
    """What bounds every tree of a drafter."""

    context_length: int
    grow_ahead: int  # levels beyond the budget's depth


class Session:
    """State of one session. The engine's thread owns it.

    `levels` counts the forwards that have extended the tree below the present root (the root's own included). All
    decisions about *when* to send follow it, not the number of nodes: see `GrowingTree` on exactness.
    """

    def __init__(
        self, key: SessionKey, opening: SessionOpening, table: BlockTable, scratch: ScratchSlots, expander: Expander
    ) -> None:
        self.key = key
        self.epoch = opening.epoch
        self.opening = opening
        self.tokens = list(opening.token_ids)
        self.budget = opening.budget.within(MAX_BUDGET)
        self.paused = False
        self.table = table
        self.scratch = scratch
        self.expander = expander
        self.tree = GrowingTree(self.tokens[-1], len(self.tokens) - 1)
        self.levels = 0
        self.sent_for = -1  # base_len of the last proposal
        self.starved = False  # no memory for more nodes: send what is there
        self.num_proposals = 0
        self.span: Span = NO_SPAN
        self.last_used = 0  # engine's counter of commits; the smallest loses its tree first

    @property
    def base_len(self) -> int:
        return len(self.tokens)

    @property
    def root_is_fed(self) -> bool:
        return self.table.num_computed == self.base_len

    @property
    def sent(self) -> bool:
        return self.sent_for == self.base_len

    @property
    def silent(self) -> bool:
        """Whether the verifier wants no proposals for now."""
        return self.paused or min(self.budget.max_depth, self.budget.max_width, self.budget.max_nodes) == 0

    def depth_limit(self, limits: SessionLimits, ahead: int = 0) -> int:
        """Deepest node that is of use: within budget, context, and one token before the answer's end."""
        depth = min(self.budget.max_depth + ahead, limits.context_length - self.base_len)
        max_tokens = self.opening.sampling.max_tokens
        if max_tokens is not None:
            depth = min(depth, self.opening.prompt_tokens + max_tokens - self.base_len - 1)
        return max(depth, 0)

    def beam(self) -> int:
        """Nodes to expand at one level, so that `max_depth` levels fill the node budget."""
        return -(-self.budget.max_nodes // self.budget.max_depth)

    def needs_feed(self, limits: SessionLimits) -> bool:
        """Whether committed tokens must be computed before anything can be drafted."""
        return not self.silent and not self.root_is_fed and self.depth_limit(limits) > 0

    def wants(self, limits: SessionLimits) -> list[Node]:
        """Nodes to expand next, best first; [] when nothing is worth a forward."""
        if self.silent or self.starved or not self.tree.root.expanded:
            return []
        depth = self.depth_limit(limits, limits.grow_ahead if self.sent else 0)
        if self.levels >= depth:
            return []
        floor = self.tree.root.log_survival + _LOG_MIN_SURVIVAL
        if not self.sent:
            listed = self.tree.best(self._limited(depth))
            if len(listed) >= self.budget.max_nodes:  # children of less probable nodes cannot enter any more
                floor = max(floor, listed[-1].log_survival)
        return [n for n in self.tree.frontier(depth)[: self.beam()] if n.log_survival > floor]

    def ready(self, limits: SessionLimits) -> bool:
        """Whether a proposal is due that further levels could not improve."""
        if self.silent or self.sent:
            return False
        return self.depth_limit(limits) == 0 or (self.tree.root.expanded and not self.wants(limits))

    def ready_early(self, limits: SessionLimits) -> bool:
        """Whether what survived a commit is worth sending at once: it has half the levels of a full tree.

        Simulated with a verify step of 4 to 8 draft forwards, a fifth, a half or all of the levels make a difference
        of at most 4 % either way; half is never the worst, and leaves the verifier less time to wait.
        """
        if self.silent or self.sent or not self.tree.root.expanded:
            return False
        return 2 * self.levels >= self.depth_limit(limits)

    def prepare(self, limits: SessionLimits) -> bool:
        """Use a moment without work: noise that the next proposals need. False when there is nothing to prepare."""
        if self.silent:
            return False
        furthest = self.base_len + 2 * self.budget.max_depth + limits.grow_ahead
        return self.expander.prepare(self.base_len, furthest)

    def proposal(self, limits: SessionLimits) -> Proposal:
        """The best nodes within the budget; the distributions of inner nodes where the rule wants them."""
        nodes = self.tree.best(self._limited(self.depth_limit(limits)))
        return as_proposal(nodes, self.tree.root, self.base_len)

    def apply(self, commit: SessionCommit, manager: KvCacheManager, storage: KvStorage) -> bool:
        """Extend the committed tokens and move the root; the caller has reserved room for their K/V.

        True on a hit: the new root is a node of the tree, and all below it survives.
        """
        self.budget, self.paused, self.starved = commit.budget.within(MAX_BUDGET), commit.paused, False
        if not commit.token_ids:
            return False
        path = self.tree.match(commit.token_ids)
        computed = [n for n in path if n.expanded]
        self._keep_kv(computed, storage)
        num_computed = self.table.num_computed + len(computed)
        self.tokens.extend(commit.token_ids)
        self.expander.commit(commit.token_ids)
        hit = len(path) == len(commit.token_ids)
        if hit:
            self.scratch.give_back(self.tree.reroot(path[-1]))
            self.levels = max(0, self.levels - len(path)) if path[-1].expanded else 0
        else:
            self.drop_tree()
        manager.commit(self.table, self.tokens, num_computed)
        return hit

    def drop_tree(self) -> None:
        """Forget all nodes (the new root has not been fed yet) and give their memory back."""
        self.scratch.clear()
        self.tree = GrowingTree(self.tokens[-1], self.base_len - 1)
        self.levels = 0

    def prune_tree(self) -> None:
        """Make room for others: keep only what needs no memory, the root's children."""
        self.scratch.clear()
        self.tree.prune()
        self.levels = min(self.levels, 1)

    def close(self, manager: KvCacheManager) -> None:
        """Give everything back."""
        self.scratch.clear()
        manager.close(self.table)

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless tree, slots and tokens agree."""
        self.tree.check_invariants()
        self.scratch.check_invariants()
        root = self.tree.root
        require(set(self.tree.slots()) == self.scratch.taken, "the tree's slots are not those that are taken")
        require(root.position == self.base_len - 1 and root.token == self.tokens[-1], "the root is not the last token")
        require(self.root_is_fed or not root.expanded, "the root was expanded without its K/V")

    def _limited(self, depth: int) -> TreeBudget:
        return TreeBudget(depth, self.budget.max_width, self.budget.max_nodes)

    def _keep_kv(self, nodes: list[Node], storage: KvStorage) -> None:
        """Copy the K/V of accepted nodes from scratch to their place in the context."""
        if not nodes:
            return
        sources = [n.slot for n in nodes if n.slot is not None]
        targets = [int(self.table.slots[n.position]) for n in nodes]
        device = storage.data.device
        storage.move(torch.tensor(sources, device=device), torch.tensor(targets, device=device))
