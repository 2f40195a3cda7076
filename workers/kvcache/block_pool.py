"""Physical blocks: who holds them, which are free, which can be matched by their digest.

A block is in one of three places::

    owned      references > 0
    evictable  no references, content still matchable; reused oldest first
    empty      no references, no content worth keeping; reused before evictable ones

Any owned block can be matchable too: that is how running requests share a prefix.
"""

from collections import OrderedDict
from collections.abc import Sequence

from workers.core.block_hash import short_hash
from workers.core.errors import ConfigurationError
from workers.kvcache.events import ChangeSet, KvCacheEvents

__all__ = ["BlockPool"]


class BlockPool:
    """Reference counts, least-recently-used eviction and the map from digest to block."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ConfigurationError(f"num_blocks must be at least 1, not {num_blocks}")
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._empty = list(reversed(range(num_blocks)))  # a stack
        self._evictable: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._digests: dict[int, bytes] = {}  # matchable block -> digest
        self._blocks: dict[bytes, int] = {}  # digest -> matchable block
        self._changes = ChangeSet()

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now, evictable ones included."""
        return len(self._empty) + len(self._evictable)

    def references(self, block: int) -> int:
        return self._references[block]

    def digest(self, block: int) -> bytes | None:
        """The digest under which the block can be found; None when it cannot."""
        return self._digests.get(block)

    def find(self, digest: bytes) -> int | None:
        """The block with this content; `acquire` it before anything else is allocated."""
        return self._blocks.get(digest)

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks with one reference each; None, and no change, when there are fewer."""
        if count > self.num_free:
            return None
        blocks = [self._empty.pop() if self._empty else self._evict() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def acquire(self, block: int) -> None:
        """One more reference to a matchable or owned block."""
        if self._references[block] == 0:
            if block not in self._evictable:
                raise ValueError(f"block {block} is empty: it can be allocated, but not acquired")
            del self._evictable[block]
        self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference to each. The end of a chain counts as older: it is evicted before its parents."""
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise ValueError(f"block {block} has no references to release")
            self._references[block] -= 1
            if self._references[block] == 0:
                if block in self._digests:
                    self._evictable[block] = None
                else:
                    self._empty.append(block)

    def register(self, block: int, digest: bytes) -> bool:
        """Make an owned, fully written block matchable. False when another block has the same content already."""
        if self._references[block] == 0:
            raise ValueError(f"block {block} is not owned: its content may be overwritten")
        if digest in self._blocks:
            return self._blocks[digest] == block
        if block in self._digests:
            raise ValueError(f"block {block} is registered with other content")
        self._digests[block] = digest
        self._blocks[digest] = block
        self._changes.store(short_hash(digest))
        return True

    def forget_all(self) -> None:
        """Make every block unmatchable; owners keep theirs."""
        self._digests.clear()
        self._blocks.clear()
        self._empty.extend(self._evictable)
        self._evictable.clear()
        self._changes.clear()

    def matchable(self) -> list[int]:
        """64-bit hashes of all blocks that `find` can return."""
        return [short_hash(digest) for digest in self._blocks]

    def take_events(self) -> KvCacheEvents:
        """What `matchable` gained and lost since the last call."""
        return self._changes.take()

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless every block is in exactly one place and the maps agree."""
        owned = [block for block, count in enumerate(self._references) if count > 0]
        places = sorted([*owned, *self._empty, *self._evictable])
        if places != list(range(self.num_blocks)):
            raise AssertionError(f"owned {owned} + empty {self._empty} + evictable {list(self._evictable)} != all")
        if any(count < 0 for count in self._references):
            raise AssertionError("a reference count is negative")
        if {block: digest for digest, block in self._blocks.items()} != self._digests:
            raise AssertionError("the maps block -> digest and digest -> block disagree")
        if not self._evictable.keys() <= self._digests.keys():
            raise AssertionError("an evictable block cannot be matched")
        if not self._digests.keys().isdisjoint(self._empty):
            raise AssertionError("an empty block can be matched")

    def _evict(self) -> int:
        block, _ = self._evictable.popitem(last=False)
        digest = self._digests.pop(block)
        del self._blocks[digest]
        self._changes.remove(short_hash(digest))
        return block
