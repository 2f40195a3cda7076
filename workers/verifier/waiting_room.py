"""The bounded queue of one verifier: priority first, then fair between tenants, then first come.

    rank of a request = (priority, its tenant's virtual token counter, order of arrival); the smallest is served first

A full room is not simply closed: a request takes the place of one that ranks behind it, and a tenant that has filled it
gives way to one with fewer requests. So nobody can lock others out by sending more.
"""

import threading
from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from workers.scheduling.fair_shares import FairShares
from workers.verifier.request_state import RequestState

__all__ = ["Rank", "WaitingRoom"]

Rank = tuple[int, float, int]
_Line = list[RequestState]  # of one tenant at one priority, in order of arrival


class WaitingRoom:
    """Thread-safe: any thread offers, the engine's thread takes. Owns the tenants' counters."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._shares = FairShares()
        self._lines: dict[int, dict[str, _Line]] = {}  # priority -> tenant -> line; none is empty
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[RequestState]:
        """A copy of what waits now."""
        with self._lock:
            return iter([state for lines in self._lines.values() for line in lines.values() for state in line])

    def __contains__(self, state: RequestState) -> bool:
        with self._lock:
            return state in self._lines.get(state.request.priority, {}).get(state.request.tenant.name, [])

    def rank(self, state: RequestState) -> Rank:
        """Of waiting and running requests; it changes as their tenants are served."""
        with self._lock:
            return state.request.priority, self._shares.counter(state.request.tenant.name), state.key

    def offer(self, state: RequestState, room: int) -> tuple[bool, RequestState | None]:
        """Let a new request wait where at most `room` may.

        Returns whether it does, and whom it displaced: one that has no output yet and whose client is to be told.
        """
        with self._lock:
            displaced = None
            if self._size >= room:
                displaced = self._whom_to_displace(state)
                if displaced is None:
                    return False, None
                self.remove(displaced)
            tenant = state.request.tenant
            self._shares.arrive(tenant.name, tenant.weight)
            self._insert(state)
            return True, displaced

    def head(self) -> RequestState | None:
        """Who is next."""
        with self._lock:
            if not self._lines:
                return None
            lines = self._lines[min(self._lines)]
            return min((line[0] for line in lines.values()), key=self.rank)

    def take(self, state: RequestState, new_prompt_tokens: int) -> bool:
        """It begins to run, and `new_prompt_tokens` are charged; False when it has left the room meanwhile."""
        with self._lock:
            if state not in self:
                return False
            self._delete(state)
            name = state.request.tenant.name
            self._shares.start(name)
            self._shares.charge(name, new_prompt_tokens, 0)
            return True

    def put_back(self, state: RequestState) -> None:
        """A running request waits again, at its old place in its tenant's line."""
        with self._lock:
            self._shares.put_back(state.request.tenant.name)
            self._insert(state)

    def remove(self, state: RequestState) -> None:
        """It ends without running (again)."""
        with self._lock:
            self._delete(state)
            self._shares.leave(state.request.tenant.name, waiting=True)

    def ran(self, state: RequestState) -> None:
        """A running request has ended."""
        with self._lock:
            self._shares.leave(state.request.tenant.name, waiting=False)

    def served(self, state: RequestState, output_tokens: int) -> None:
        with self._lock:
            self._shares.charge(state.request.tenant.name, 0, output_tokens)

    def _whom_to_displace(self, new: RequestState) -> RequestState | None:
        """The youngest request of the tenant that has most of them waiting, at the last priority."""
        if not self._lines:  # nobody may wait here
            return None
        priority = max(self._lines)
        if priority < new.request.priority:
            return None
        own = new.request.tenant.name
        untouched = {
            name: waiting for name, line in self._lines[priority].items() if (waiting := [s for s in line if s.fresh])
        }
        if not untouched:
            return None
        name = max(untouched, key=lambda one: (len(untouched[one]), self._shares.counter(one)))
        fair = len(untouched[name]) > len(self._lines[priority].get(own, ())) + 1
        if priority == new.request.priority and (name == own or not fair):
            return None
        return untouched[name][-1]

    def _insert(self, state: RequestState) -> None:
        line = self._lines.setdefault(state.request.priority, {}).setdefault(state.request.tenant.name, [])
        insort(line, state, key=attrgetter("key"))
        self._size += 1

    def _delete(self, state: RequestState) -> None:
        """Raises `ValueError` when it does not wait."""
        priority, tenant = state.request.priority, state.request.tenant.name
        self._lines.get(priority, {}).get(tenant, []).remove(state)
        self._size -= 1
        if not self._lines[priority][tenant]:
            del self._lines[priority][tenant]
        if not self._lines[priority]:
            del self._lines[priority]
