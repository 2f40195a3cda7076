"""Reference counts, eviction order, matching."""

import pytest

from workers.core.block_hash import short_hash
from workers.core.errors import ConfigurationError
from workers.kvcache.block_pool import BlockPool
from workers.kvcache.events import KvCacheEvents

A, B, C, D = (bytes([letter]) * 32 for letter in b"ABCD")


def allocate(pool: BlockPool, count: int) -> list[int]:
    blocks = pool.allocate(count)
    assert blocks is not None
    pool.check_invariants()
    return blocks


def cached(pool: BlockPool, *digests: bytes) -> list[int]:
    """Blocks that were written, registered and released."""
    blocks = allocate(pool, len(digests))
    for block, digest in zip(blocks, digests, strict=True):
        assert pool.register(block, digest)
    pool.release(blocks)
    pool.check_invariants()
    return blocks


def test_blocks_are_handed_out_once() -> None:
    pool = BlockPool(4)
    assert sorted(allocate(pool, 1) + allocate(pool, 3)) == [0, 1, 2, 3]
    assert pool.num_free == 0
    assert pool.allocate(1) is None
    assert pool.allocate(0) == []


def test_refused_allocation_changes_nothing() -> None:
    pool = BlockPool(3)
    cached(pool, A, B)
    allocate(pool, 1)
    pool.take_events()
    assert pool.allocate(3) is None
    assert (pool.num_free, set(pool.matchable())) == (2, {short_hash(A), short_hash(B)})
    assert not pool.take_events()
    pool.check_invariants()


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(2)
    (block,) = allocate(pool, 1)
    pool.acquire(block)
    pool.release([block])
    assert (pool.references(block), pool.num_free) == (1, 1)
    pool.release([block])
    assert (pool.references(block), pool.num_free) == (0, 2)


def test_released_blocks_stay_matchable_until_memory_is_needed() -> None:
    pool = BlockPool(3)
    (block,) = cached(pool, A)
    assert pool.num_free == 3
    allocate(pool, 2)
    assert pool.find(A) == block
    pool.acquire(block)
    pool.check_invariants()
    assert (pool.num_free, pool.references(block)) == (0, 1)
    pool.release([block])
    assert allocate(pool, 1) == [block]
    assert (pool.find(A), pool.digest(block)) == (None, None)


def test_least_recently_used_goes_first_and_tails_before_parents() -> None:
    pool = BlockPool(4)
    a, b = cached(pool, A, B)  # one chain, A before B
    (c,) = cached(pool, C)
    (d,) = cached(pool, D)
    pool.acquire(c)
    pool.release([c])  # used again: now the youngest
    order = [allocate(pool, 1)[0] for _ in range(4)]
    assert order == [b, a, d, c]


def test_the_first_block_with_a_content_stays_the_one_that_is_found() -> None:
    pool = BlockPool(3)
    first, second = allocate(pool, 2)
    assert pool.register(first, A)
    assert pool.register(first, A)
    assert not pool.register(second, A)
    pool.release([second])
    assert pool.find(A) == first
    assert (pool.digest(second), pool.num_free) == (None, 2)
    pool.check_invariants()


def test_forgetting_keeps_owners_and_frees_the_rest() -> None:
    pool = BlockPool(3)
    (owned,) = allocate(pool, 1)
    pool.register(owned, A)
    cached(pool, B)
    pool.forget_all()
    pool.check_invariants()
    assert (pool.find(A), pool.find(B), pool.matchable(), pool.num_free) == (None, None, [], 2)
    pool.release([owned])
    assert pool.num_free == 3
    pool.check_invariants()


def test_events_are_the_net_change() -> None:
    pool = BlockPool(1)
    cached(pool, A)
    assert pool.take_events() == KvCacheEvents(stored=(short_hash(A),))
    cached(pool, B)  # evicts A
    assert pool.take_events() == KvCacheEvents(stored=(short_hash(B),), removed=(short_hash(A),))
    cached(pool, C)
    cached(pool, B)
    assert not pool.take_events()
    pool.forget_all()
    cached(pool, A)
    assert pool.take_events() == KvCacheEvents(stored=(short_hash(A),), cleared=True)


def test_misuse_is_named() -> None:
    with pytest.raises(ConfigurationError, match="num_blocks must be at least 1, not 0"):
        BlockPool(0)
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="block 0 is empty"):
        pool.acquire(0)
    with pytest.raises(ValueError, match="block 1 has no references"):
        pool.release([1])
    with pytest.raises(ValueError, match="block 0 is not owned"):
        pool.register(0, A)
    (block,) = allocate(pool, 1)
    pool.register(block, A)
    with pytest.raises(ValueError, match="registered with other content"):
        pool.register(block, B)


def test_invariants_notice_lost_and_doubled_blocks() -> None:
    lost, doubled, stray = BlockPool(2), BlockPool(2), BlockPool(2)
    lost._empty.pop()
    doubled._references[0] = 1
    (block,) = cached(stray, A)
    stray._digests[block] = B
    for pool in (lost, doubled, stray):
        with pytest.raises(AssertionError):
            pool.check_invariants()
