"""Who has to give way when the K/V pool is full.

Unused prefix blocks go first (the manager sees to that), then the trees of the sessions that were committed to least
recently: a tree only costs speed, and can be drawn again.
"""

import math
from collections.abc import Collection, Mapping

from workers.draft.session import Session, SessionKey
from workers.kvcache.manager import KvCacheManager

__all__ = ["TreeMemory"]


class TreeMemory:
    """Takes blocks for contexts and trees, at the cost of other sessions' trees where needed."""

    def __init__(self, manager: KvCacheManager, sessions: Mapping[SessionKey, Session]) -> None:
        self._manager = manager
        self._sessions = sessions
        self.num_pruned = 0

    def reserve_context(self, session: Session, num_tokens: int, busy: Collection[Session] = ()) -> bool:
        """Room for `num_tokens` committed tokens; False when even without any trees there is none.

        `busy` sessions are part of the coming forward and keep their trees.
        """
        while not self._manager.reserve(session.table, num_tokens):
            if not self._prune_one(session, busy, math.inf):
                return False
        return True

    def take_scratch(self, session: Session, count: int, busy: Collection[Session] = ()) -> list[int] | None:
        """Slots for tree nodes. Only trees of sessions used less recently give way, so that no two take turns."""
        while (slots := session.scratch.take(count)) is None:
            if not self._prune_one(session, busy, session.last_used):
                return None
        return slots

    def _prune_one(self, session: Session, busy: Collection[Session], used_before: float) -> bool:
        """Prune the least recently used tree, if there is one to prune."""
        holders = (
            other
            for other in self._sessions.values()
            if other.scratch.num_blocks and other.last_used < used_before and other is not session and other not in busy
        )
        victim = min(holders, key=lambda s: s.last_used, default=None)
        if victim is None:
            return False
        victim.prune_tree()
        self.num_pruned += 1
        return True
