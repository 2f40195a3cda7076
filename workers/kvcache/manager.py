"""Books of the K/V memory: which sequence holds which slots, and which full blocks can be shared.

One sequence, from start to end::

    table = manager.open(token_ids, salt)        shares the blocks of a known prefix
    manager.reserve(table, n)                    room for committed tokens + root + tree nodes
        … K/V of new tokens go to table.slots[num_computed:], the accepted path is compacted …
    manager.commit(table, token_ids, computed)   full blocks become matchable for others
    manager.trim(table, n)                       gives back room that is not needed now
    manager.close(table)                         blocks stay matchable until memory is needed

Not thread-safe: it belongs to the engine's thread.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from workers.core.block_hash import BlockHasher
from workers.core.errors import ConfigurationError
from workers.kvcache.block_pool import BlockPool
from workers.kvcache.block_table import BlockTable
from workers.kvcache.events import KvCacheEvents

__all__ = ["BlockTable", "KvCacheManager"]


class KvCacheManager:
    """Block tables over one pool with a prefix cache."""

    def __init__(self, *, num_blocks: int, block_size: int, hasher: BlockHasher, prefix_caching: bool = True) -> None:
        if hasher.block_size != block_size:
            raise ConfigurationError(
                f"the hasher's block_size ({hasher.block_size}) must equal the cache's ({block_size})"
            )
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._hasher = hasher
        self._pool = BlockPool(num_blocks)
        self._tables: set[BlockTable] = set()
        self._generation = 0  # counts resets of the prefix cache

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that `reserve` can hand out, evictable ones included."""
        return self._pool.num_free

    def open(self, token_ids: Sequence[int], cache_salt: str) -> BlockTable:
        """A table that shares the longest cached prefix; at least the last token stays to be computed."""
        if len(token_ids) == 0:
            raise ValueError("a sequence needs at least one token")
        table = BlockTable(self.block_size, self._hasher.seed(cache_salt), self._generation)
        if self.prefix_caching:
            self._match(table, token_ids)
        self._tables.add(table)
        return table

    def reserve(self, table: BlockTable, num_tokens: int) -> bool:
        """Make `capacity` at least `num_tokens`. False, and nothing changed, when the pool has too few blocks."""
        self._check_open(table)
        missing = self._blocks_for(num_tokens) - len(table.blocks)
        if missing <= 0:
            return True
        blocks = self._pool.allocate(missing)
        if blocks is None:
            return False
        table.append(blocks)
        return True

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Record that slots 0..num_computed-1 hold the K/V of the first `num_computed` committed `token_ids`.

        Committed tokens only ever grow. Costs time for newly full blocks only.
        """
        self._check_open(table)
        most = min(len(token_ids), table.capacity)
        if not table.num_computed <= num_computed <= most:
            raise ValueError(
                f"num_computed is {num_computed}; allowed are {table.num_computed} (computed before) "
                f"to {most} ({len(token_ids)} tokens, capacity {table.capacity})"
            )
        table.num_computed = num_computed
        known, full = len(table.digests), num_computed // self.block_size
        if full > known and self._may_share(table):
            new_tokens = token_ids[known * self.block_size : full * self.block_size]
            table.digests += list(self._hasher.extend(table.last_digest, new_tokens))
            self._register(table, known)

    def trim(self, table: BlockTable, num_tokens: int) -> None:
        """Give back the blocks beyond the first `num_tokens` slots; computed tokens cannot be given back."""
        self._check_open(table)
        if num_tokens < table.num_computed:
            raise ValueError(f"cannot trim to {num_tokens} tokens: {table.num_computed} are computed")
        self._pool.release(table.cut(self._blocks_for(num_tokens)))

    def close(self, table: BlockTable) -> None:
        """Give back everything. Full blocks stay matchable until they are evicted."""
        self._check_open(table)
        if self._may_share(table):
            self._register(table, 0)  # duplicates whose original has been evicted meanwhile
        self._tables.remove(table)
        self._pool.release(table.cut(0))

    def reset_prefix_cache(self) -> None:
        """Forget all cached content (say, after new weights). Open tables go on, but share nothing any more."""
        self._generation += 1
        self._pool.forget_all()

    def take_events(self) -> KvCacheEvents:
        """Net change of `snapshot` since the last call."""
        return self._pool.take_events()

    def snapshot(self) -> list[int]:
        """64-bit hashes of all blocks that can be matched now."""
        return self._pool.matchable()

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless the books balance and no shared slot can be written."""
        self._pool.check_invariants()
        holders = Counter(block for table in self._tables for block in table.blocks)
        for block in range(self.num_blocks):
            if self._pool.references(block) != holders[block]:
                raise AssertionError(
                    f"block {block}: {self._pool.references(block)} references, held by {holders[block]} tables"
                )
        for table in self._tables:
            self._check_table(table)

    def _check_table(self, table: BlockTable) -> None:
        size = self.block_size
        if len(set(table.blocks)) != len(table.blocks):
            raise AssertionError(f"a table holds a block twice: {table.blocks}")
        expected = [block * size + offset for block in table.blocks for offset in range(size)]
        if not np.array_equal(table.slots, expected):
            raise AssertionError(f"slots {table.slots} do not follow from blocks {table.blocks}")
        if not table.num_cached_tokens <= table.num_computed <= table.capacity or table.num_cached_tokens % size:
            raise AssertionError(
                f"cached {table.num_cached_tokens}, computed {table.num_computed}, capacity {table.capacity}"
            )
        for block in table.blocks[table.num_computed // size :]:  # the ones that may still be written
            if self._pool.references(block) != 1 or self._pool.digest(block) is not None:
                raise AssertionError(f"block {block} is shared or matchable, and its owner may write to it")

    def _match(self, table: BlockTable, token_ids: Sequence[int]) -> None:
        matchable = (len(token_ids) - 1) // self.block_size * self.block_size
        blocks: list[int] = []
        for digest in self._hasher.extend(table.seed, token_ids[:matchable]):
            block = self._pool.find(digest)
            if block is None:
                break
            blocks.append(block)
            table.digests.append(digest)
        for block in blocks:
            self._pool.acquire(block)
        table.append(blocks)
        table.num_cached_tokens = table.num_computed = table.capacity

    def _register(self, table: BlockTable, first: int) -> None:
        for block, digest in zip(table.blocks[first:], table.digests[first:], strict=False):
            self._pool.register(block, digest)

    def _may_share(self, table: BlockTable) -> bool:
        # After a reset, K/V of older tables may stem from what the reset wanted gone.
        return self.prefix_caching and table.generation == self._generation

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _check_open(self, table: BlockTable) -> None:
        if table not in self._tables:
            raise ValueError("this block table is closed, or belongs to another manager")
