"""Who has to give way when the K/V pool is full.

Unused prefix blocks go first (the manager sees to that), then the trees of the sessions that were committed to least
recently: a tree only costs speed, and can be drawn again.
"""

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
        victims = self._victims(session, busy, stop=None)
        while not self._manager.reserve(session.table, num_tokens):
            if not victims:
                return False
            self._prune(victims.pop())
        return True

    def take_scratch(self, session: Session, count: int, busy: Collection[Session] = ()) -> list[int] | None:
        """Slots for tree nodes. Only trees of sessions used less recently give way, so that no two take turns."""
        victims = self._victims(session, busy, stop=session.last_used)
        while (slots := session.scratch.take(count)) is None:
            if not victims:
                return None
            self._prune(victims.pop())
        return slots

    def _victims(self, session: Session, busy: Collection[Session], stop: int | None) -> list[Session]:
        """Sessions whose trees may go, the next one last."""
        holders = [
            other
            for other in self._sessions.values()
            if other is not session
            and other not in busy
            and other.scratch.num_blocks
            and (stop is None or other.last_used < stop)
        ]
        return sorted(holders, key=lambda s: -s.last_used)

    def _prune(self, session: Session) -> None:
        session.prune_tree()
        self.num_pruned += 1
