"""Which replicas hold which K/V blocks: what their events said, and what recent choices will have put there.

Each replica has a slot, a small number; the holders of a block are one integer with a bit for each slot. A prompt's
blocks are chained (`workers.core.block_hash`), so a replica can reuse the leading blocks that it holds, and the search
ends at the first block that nobody has.

All of it is hints: a replica may have evicted a block a moment ago. A wrong hint costs a recomputed prompt.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["PrefixIndex"]


class PrefixIndex:
    """Blocks by 64-bit hash. Knows no clock: times are arguments, in seconds, never decreasing."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}  # block -> bits of the slots that hold it, or will soon
        self._held: dict[int, set[int]] = {}  # slot -> what it said it holds
        self._expected: dict[int, dict[int, float]] = {}  # slot -> what it will hold soon -> until when that counts
        self._expiries: deque[tuple[float, int, list[int]]] = deque()

    @property
    def num_blocks(self) -> int:
        """Different blocks that replicas hold or will hold soon."""
        return len(self._holders)

    def held_by(self, slot: int) -> int:
        """Blocks that the replica said it holds."""
        return len(self._held.get(slot, ()))

    def store(self, slot: int, blocks: Iterable[int]) -> None:
        """The replica said that it holds these as well."""
        held, holders, bit = self._held.setdefault(slot, set()), self._holders, 1 << slot
        for block in blocks:
            held.add(block)
            holders[block] = holders.get(block, 0) | bit

    def remove(self, slot: int, blocks: Iterable[int]) -> None:
        """The replica said that these are gone; what is not known is ignored."""
        held, expected = self._held.get(slot, set()), self._expected.get(slot, {})
        for block in blocks:
            if block in held or block in expected:
                held.discard(block)
                expected.pop(block, None)
                self._clear_bit(slot, block)

    def clear(self, slot: int) -> None:
        """The replica said that it holds nothing. What was sent there lately, and not announced yet, is still
        expected."""
        expected = self._expected.get(slot, {})
        for block in self._held.pop(slot, ()):
            if block not in expected:
                self._clear_bit(slot, block)

    def drop(self, slot: int) -> None:
        """The replica is gone: its slot may be given to another one."""
        self.clear(slot)
        for block in self._expected.pop(slot, ()):
            self._clear_bit(slot, block)

    def expect(self, slot: int, blocks: Sequence[int], until_s: float) -> None:
        """A request with these blocks was sent there: until then they count as held.

        Those that it said it holds need no such belief: what takes them away would take that away as well.
        """
        held = self._held.get(slot, ())
        new = [block for block in blocks if block not in held]
        if not new:
            return
        holders, bit = self._holders, 1 << slot
        for block in new:
            holders[block] = holders.get(block, 0) | bit
        self._expected.setdefault(slot, {}).update(dict.fromkeys(new, until_s))
        self._expiries.append((until_s, slot, new))

    def expire(self, now_s: float) -> None:
        """Forget expectations whose time has passed; to be called before `match`."""
        while self._expiries and self._expiries[0][0] <= now_s:
            _, slot, blocks = self._expiries.popleft()
            held, expected = self._held.get(slot, ()), self._expected.get(slot, {})
            for block in blocks:
                if expected.get(block, math.inf) <= now_s:
                    del expected[block]
                    if block not in held:
                        self._clear_bit(slot, block)

    def match(self, blocks: Sequence[int]) -> dict[int, int]:
        """Slot -> number of leading `blocks` that it holds; slots without the first are absent."""
        matched: dict[int, int] = {}
        left = -1  # bits of the slots that hold all blocks so far; -1 has all bits
        get = self._holders.get
        for depth, block in enumerate(blocks):
            holders = left & get(block, 0)
            if holders == left:
                continue
            if depth:
                matched.update((slot, depth) for slot in _slots(left & ~holders))
            left = holders
            if not left:
                return matched
        if blocks:
            matched.update((slot, len(blocks)) for slot in _slots(left))
        return matched

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless both directions agree and no block without holders is kept."""
        pairs = {(slot, block) for known in (self._held, self._expected) for slot, of in known.items() for block in of}
        found = {(slot, block) for block, bits in self._holders.items() for slot in _slots(bits)}
        if found != pairs or not all(self._holders.values()):
            raise AssertionError(f"bits say {found}, sets say {pairs}")

    def _clear_bit(self, slot: int, block: int) -> None:
        left = self._holders[block] & ~(1 << slot)
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]


def _slots(bits: int) -> Iterator[int]:
    """Numbers of the set bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
