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
        self._holders: dict[int, int] = {}  # block -> bits of the slots that said they hold it
        self._blocks: dict[int, set[int]] = {}  # slot -> what it said it holds
        self._expected: dict[int, int] = {}  # block -> bits of slots that will hold it soon
        self._until: dict[int, dict[int, float]] = {}  # slot -> block of `_expected` -> when it is forgotten
        self._expiries: deque[tuple[float, int, list[int]]] = deque()

    @property
    def num_blocks(self) -> int:
        """Different blocks that replicas said they hold."""
        return len(self._holders)

    def held_by(self, slot: int) -> int:
        """Blocks that the replica said it holds."""
        return len(self._blocks.get(slot, ()))

    def store(self, slot: int, blocks: Iterable[int]) -> None:
        """The replica said that it holds these as well."""
        held, bit = self._blocks.setdefault(slot, set()), 1 << slot
        for block in blocks:
            held.add(block)
            self._holders[block] = self._holders.get(block, 0) | bit

    def remove(self, slot: int, blocks: Iterable[int]) -> None:
        """The replica said that these are gone; what is not known is ignored."""
        held, bit = self._blocks.get(slot, set()), 1 << slot
        for block in blocks:
            if block in held:
                held.discard(block)
                _clear_bit(self._holders, block, bit)
            self._forget_expected(slot, block)

    def clear(self, slot: int) -> None:
        """The replica said that it holds nothing. What was sent there lately, and not announced yet, is still
        expected."""
        for block in self._blocks.pop(slot, ()):
            _clear_bit(self._holders, block, 1 << slot)

    def drop(self, slot: int) -> None:
        """The replica is gone: its slot may be given to another one."""
        self.clear(slot)
        for block in self._until.pop(slot, ()):
            _clear_bit(self._expected, block, 1 << slot)

    def expect(self, slot: int, blocks: Sequence[int], until_s: float) -> None:
        """A request with these blocks was sent there: until then they count as held.

        Those that it said it holds need no such belief: what takes them away would take that away as well.
        """
        held = self._blocks.get(slot, ())
        new = [block for block in blocks if block not in held]
        if not new:
            return
        expected, until, bit = self._expected, self._until.setdefault(slot, {}), 1 << slot
        for block in new:
            expected[block] = expected.get(block, 0) | bit
            until[block] = until_s
        self._expiries.append((until_s, slot, new))

    def expire(self, now_s: float) -> None:
        """Forget expectations whose time has passed; to be called before `match`."""
        while self._expiries and self._expiries[0][0] <= now_s:
            _, slot, blocks = self._expiries.popleft()
            until = self._until.get(slot, {})
            for block in blocks:
                if until.get(block, math.inf) <= now_s:
                    self._forget_expected(slot, block)

    def match(self, blocks: Sequence[int]) -> dict[int, int]:
        """Slot -> number of leading `blocks` that it holds; slots without the first are absent."""
        matched: dict[int, int] = {}
        left = -1  # bits of the slots that hold all blocks so far; -1 has all bits
        held, expected = self._holders.get, self._expected.get
        for depth, block in enumerate(blocks):
            holders = left & (held(block, 0) | expected(block, 0))
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
        """Raise `AssertionError` unless both directions agree and nothing empty is kept."""
        for holders, pairs in (
            (self._holders, {(slot, block) for slot, held in self._blocks.items() for block in held}),
            (self._expected, {(slot, block) for slot, until in self._until.items() for block in until}),
        ):
            found = {(slot, block) for block, bits in holders.items() for slot in _slots(bits)}
            if found != pairs or not all(holders.values()):
                raise AssertionError(f"bits say {found}, sets say {pairs}")

    def _forget_expected(self, slot: int, block: int) -> None:
        until = self._until.get(slot)
        if until is None or until.pop(block, None) is None:
            return
        _clear_bit(self._expected, block, 1 << slot)
        if not until:
            del self._until[slot]


def _clear_bit(holders: dict[int, int], block: int, bit: int) -> None:
    left = holders[block] & ~bit
    if left:
        holders[block] = left
    else:
        del holders[block]


def _slots(bits: int) -> Iterator[int]:
    """Numbers of the set bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
