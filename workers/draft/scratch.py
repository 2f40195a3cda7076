"""Slots for the K/V of tree nodes: blocks of the shared pool, handed out one slot at a time."""

from collections.abc import Iterable

from workers.drafting.invariants import require
from workers.kvcache.block_table import BlockTable
from workers.kvcache.manager import KvCacheManager

__all__ = ["ScratchSlots"]


class ScratchSlots:
    """The scratch memory of one session. Blocks are taken when needed and given back all at once, by `clear`."""

    def __init__(self, manager: KvCacheManager) -> None:
        self._manager = manager
        self._table: BlockTable | None = None
        self._free: list[int] = []
        self._taken: set[int] = set()

    @property
    def num_blocks(self) -> int:
        return len(self._table.blocks) if self._table else 0

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)

    def take(self, count: int) -> list[int] | None:
        """`count` unused slots; None, and nothing changed, when the pool has too few blocks."""
        missing = count - len(self._free)
        if missing > 0 and not self._grow(missing):
            return None
        slots = [self._free.pop() for _ in range(count)]
        self._taken.update(slots)
        return slots

    def give_back(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._taken.remove(slot)
            self._free.append(slot)

    def clear(self) -> None:
        """Give all blocks back to the pool; slots in use become invalid."""
        if self._table is not None:
            self._manager.close(self._table)
        self._table = None
        self._free.clear()
        self._taken.clear()

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless taken + free = owned."""
        owned = set() if self._table is None else set(self._table.slots.tolist())
        require(not self._taken & set(self._free), "a scratch slot is both free and taken")
        require(self._taken | set(self._free) == owned, "free and taken scratch slots are not all that is owned")
        require(len(self._free) + len(self._taken) == len(owned), "a scratch slot is listed twice")

    def _grow(self, missing: int) -> bool:
        # A table that never commits is nothing but private blocks; one token matches no cached prefix.
        table = self._table or self._manager.open((0,), "")
        before = table.capacity
        if not self._manager.reserve(table, before + missing):
            if self._table is None:
                self._manager.close(table)
            return False
        self._table = table
        self._free.extend(reversed(table.slots[before:].tolist()))
        return True
