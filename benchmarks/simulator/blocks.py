"""The K/V blocks of one replica: full blocks by hash, shared and counted; those that nobody uses stay, oldest first."""

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["BlockCache", "Lease"]


class Lease:
    """Blocks of one request: `shared` by hash, `private` without a name yet."""

    __slots__ = ("private", "shared")

    def __init__(self, shared: list[int], private: int) -> None:
        self.shared = shared
        self.private = private


class BlockCache:
    """As `workers.kvcache`, without contents."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.private = 0
        self.stored: list[int] = []  # since `take_events`
        self.removed: list[int] = []
        self._users: dict[int, int] = {}  # block -> leases that share it
        self._idle: OrderedDict[int, None] = OrderedDict()  # cached and not in use; first out first

    def __len__(self) -> int:
        """Blocks with a hash."""
        return len(self._users)

    @property
    def free(self) -> int:
        """Blocks that a new lease may have, cached ones that nobody uses included."""
        return self.capacity - len(self._users) - self.private + len(self._idle)

    def matched(self, chain: Sequence[int]) -> int:
        """Leading blocks that are here."""
        users = self._users
        for depth, block in enumerate(chain):
            if block not in users:
                return depth
        return len(chain)

    def open(self, chain: Sequence[int], more: int) -> Lease | None:
        """Room for `chain` and `more` blocks behind it; None when there is none. `len(lease.shared)`: hits."""
        hits = self.matched(chain)
        idle = self._idle
        lost = len(idle.keys() & chain[:hits])
        missing = len(chain) - hits + more
        if missing > self.free - lost:
            return None
        for block in chain[:hits]:
            self._users[block] += 1
            idle.pop(block, None)
        self._make_room(missing)
        self.private += missing
        return Lease(list(chain[:hits]), missing)

    def name(self, lease: Lease, blocks: Sequence[int]) -> None:
        """Private blocks of the lease are full now: others may share them."""
        users = self._users
        for block in blocks:
            if block in users:  # computed twice: one copy goes
                users[block] += 1
                self._idle.pop(block, None)
            else:
                users[block] = 1
                self.stored.append(block)
        lease.shared.extend(blocks)
        lease.private -= len(blocks)
        self.private -= len(blocks)

    def close(self, lease: Lease) -> None:
        """The last blocks of a chain are given up first."""
        users, idle = self._users, self._idle
        for block in reversed(lease.shared):
            users[block] -= 1
            if not users[block]:
                idle[block] = None
        self.private -= lease.private
        lease.shared, lease.private = [], 0

    def take_events(self) -> tuple[list[int], list[int]]:
        """Stored and removed since the last call; what came and went in between is in neither."""
        stored, removed = self.stored, self.removed
        self.stored, self.removed = [], []
        if removed and stored:
            users = self._users
            stored = [block for block in dict.fromkeys(stored) if block in users]
            removed = [block for block in dict.fromkeys(removed) if block not in users]
        return stored, removed

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless blocks add up."""
        idle = {block for block, count in self._users.items() if count == 0}
        if idle != set(self._idle) or self.private < 0 or len(self._users) + self.private > self.capacity:
            raise AssertionError(
                f"{len(self._users)} named + {self.private} private of {self.capacity}; idle {len(idle)}, "
                f"listed {len(self._idle)}"
            )

    def _make_room(self, count: int) -> None:
        while self.capacity - len(self._users) - self.private < count:
            block, _ = self._idle.popitem(last=False)
            del self._users[block]
            self.removed.append(block)
