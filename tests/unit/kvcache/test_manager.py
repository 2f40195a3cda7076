"""Block tables: matching, growth, commit, release."""

import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from workers.core.block_hash import BlockHasher
from workers.core.errors import ConfigurationError
from workers.kvcache.manager import BlockTable, KvCacheManager

SIZE = 4
PROMPT = list(range(10, 22))  # three blocks


def new_manager(num_blocks: int = 8, *, prefix_caching: bool = True) -> KvCacheManager:
    return KvCacheManager(
        num_blocks=num_blocks, block_size=SIZE, hasher=BlockHasher("model", SIZE), prefix_caching=prefix_caching
    )


def run(manager: KvCacheManager, tokens: list[int], salt: str = "") -> BlockTable:
    """A sequence whose tokens are all computed."""
    table = manager.open(tokens, salt)
    assert manager.reserve(table, len(tokens))
    manager.commit(table, tokens, len(tokens))
    manager.check_invariants()
    return table


def test_slots_follow_the_blocks() -> None:
    manager = new_manager()
    table = manager.open(PROMPT, "")
    assert (table.capacity, table.num_cached_tokens, table.block_ids) == (0, 0, ())
    assert manager.reserve(table, 5)
    first = table.slots
    assert manager.reserve(table, 9)
    assert table.slots.dtype == np.int64
    assert table.slots.tolist() == [block * SIZE + offset for block in table.block_ids for offset in range(SIZE)]
    assert table.slots[:8].tolist() == first.tolist()
    assert table.capacity == 12


def test_a_slice_taken_earlier_survives_trim_and_growth() -> None:
    manager = new_manager()
    table, other = manager.open(PROMPT, ""), manager.open(PROMPT, "")
    manager.reserve(table, 8)
    taken = table.slots[4:8]
    before = taken.tolist()
    manager.trim(table, 4)
    manager.reserve(other, 4)  # gets the block that was given back
    manager.reserve(table, 8)
    assert taken.tolist() == before != table.slots[4:8].tolist()


def test_a_known_prefix_is_shared_and_the_last_token_stays_to_be_computed() -> None:
    manager = new_manager()
    table = run(manager, PROMPT)
    exact = manager.open(PROMPT, "")
    assert exact.num_cached_tokens == exact.num_computed == 8  # not 12: the last token is to be computed
    assert exact.block_ids == table.block_ids[:2]
    longer = manager.open([*PROMPT, 99], "")
    assert (longer.num_cached_tokens, longer.block_ids) == (12, table.block_ids)
    other = manager.open([*PROMPT[:5], 99, 99, 99, 99], "")
    assert (other.num_cached_tokens, other.block_ids) == (4, table.block_ids[:1])
    assert manager.num_free_blocks == 5
    manager.check_invariants()


def test_sharing_needs_the_same_salt_and_the_same_beginning() -> None:
    manager = new_manager()
    run(manager, PROMPT, "a")
    assert manager.open(PROMPT, "b").num_cached_tokens == 0
    assert manager.open([99, *PROMPT[1:]], "a").num_cached_tokens == 0
    assert manager.open(PROMPT, "a").num_cached_tokens == 8


def test_without_prefix_caching_nothing_is_shared() -> None:
    manager = new_manager(prefix_caching=False)
    manager.close(run(manager, PROMPT))
    assert manager.open(PROMPT, "").num_cached_tokens == 0
    assert manager.snapshot() == []
    assert not manager.take_events()


def test_only_computed_full_blocks_become_matchable() -> None:
    manager = new_manager()
    hashes = BlockHasher("model", SIZE).hashes(PROMPT, "")
    table = manager.open(PROMPT, "")
    manager.reserve(table, len(PROMPT))
    for computed, matchable in ((0, 0), (3, 0), (4, 1), (7, 1), (11, 2), (12, 3)):
        manager.commit(table, PROMPT, computed)
        assert manager.snapshot() == hashes[:matchable]
    assert manager.take_events().stored == tuple(hashes)


def test_commit_hashes_new_blocks_only() -> None:
    class CountingHasher(BlockHasher):
        hashed = 0

        def extend(self, previous: bytes, token_ids: Sequence[int]) -> Iterator[bytes]:
            self.hashed += len(token_ids) // self.block_size
            return super().extend(previous, token_ids)

    hasher = CountingHasher("model", SIZE)
    manager = KvCacheManager(num_blocks=8, block_size=SIZE, hasher=hasher)
    table = manager.open(PROMPT[:1], "")
    manager.reserve(table, len(PROMPT))
    for computed in range(1, len(PROMPT) + 1):
        manager.commit(table, PROMPT, computed)
    assert hasher.hashed == 3


def test_closed_sequences_stay_cached_until_evicted_from_the_tail() -> None:
    manager = new_manager(4)
    manager.close(run(manager, PROMPT))
    assert manager.num_free_blocks == 4
    table = manager.open([1], "")
    assert manager.reserve(table, 2 * SIZE)  # one empty block, one evicted
    assert manager.open([*PROMPT, 99], "").num_cached_tokens == 8
    manager.check_invariants()


def test_exhausted_pool_refuses_and_changes_nothing() -> None:
    manager = new_manager(4)
    manager.close(run(manager, PROMPT[:SIZE]))
    manager.take_events()
    table = manager.open([1], "")
    assert manager.reserve(table, 1)
    assert not manager.reserve(table, 5 * SIZE)
    assert (table.capacity, manager.num_free_blocks, len(manager.snapshot())) == (SIZE, 3, 1)
    assert not manager.take_events()
    assert manager.reserve(table, 4 * SIZE)
    manager.check_invariants()


def test_trim_gives_back_whole_blocks_beyond_the_need() -> None:
    manager = new_manager()
    table = manager.open(PROMPT, "")
    manager.reserve(table, 16)
    manager.commit(table, PROMPT, 5)
    manager.trim(table, 9)
    assert (table.capacity, len(table.slots), manager.num_free_blocks) == (12, 12, 5)
    manager.trim(table, 5)
    assert (table.capacity, manager.num_free_blocks) == (8, 6)
    with pytest.raises(ValueError, match="cannot trim to 4 tokens: 5 are computed"):
        manager.trim(table, 4)
    manager.check_invariants()


def test_duplicates_keep_the_first_block_and_step_in_when_it_is_gone() -> None:
    manager = new_manager(8)
    first, second = manager.open(PROMPT, ""), manager.open(PROMPT, "")  # both miss
    for table in (first, second):
        manager.reserve(table, len(PROMPT))
        manager.commit(table, PROMPT, len(PROMPT))
    blocks = first.block_ids
    assert manager.open([*PROMPT, 99], "").block_ids == blocks
    manager.check_invariants()

    manager = new_manager(7)
    first, second = manager.open(PROMPT, ""), manager.open(PROMPT, "")
    for table in (first, second):
        manager.reserve(table, len(PROMPT))
        manager.commit(table, PROMPT, len(PROMPT))
    manager.close(first)
    hungry = manager.open([1], "")
    manager.reserve(hungry, 4 * SIZE)  # evicts all three originals
    assert manager.snapshot() == []
    kept = second.block_ids
    manager.close(second)
    assert manager.open([*PROMPT, 99], "").block_ids == kept
    manager.check_invariants()


def test_after_a_reset_older_sequences_share_nothing() -> None:
    manager = new_manager()
    table = run(manager, PROMPT[:SIZE])
    manager.take_events()
    manager.reset_prefix_cache()
    manager.reserve(table, len(PROMPT))
    manager.commit(table, PROMPT, len(PROMPT))
    assert manager.snapshot() == []
    events = manager.take_events()
    assert (events.cleared, events.stored, events.removed) == (True, (), ())
    manager.close(table)
    assert manager.num_free_blocks == manager.num_blocks
    assert manager.open(PROMPT, "").num_cached_tokens == 0
    run(manager, PROMPT)
    assert len(manager.snapshot()) == 3


def test_a_bad_token_takes_no_reference() -> None:
    manager = new_manager()
    run(manager, PROMPT)
    with pytest.raises(ValueError, match="token ids"):
        manager.open([*PROMPT, -1, 0, 0, 0, 0], "")
    manager.check_invariants()


def test_misuse_is_named() -> None:
    manager = new_manager()
    with pytest.raises(ValueError, match="at least one token"):
        manager.open([], "")
    with pytest.raises(ConfigurationError, match=r"hasher's block_size \(8\) must equal the cache's \(4\)"):
        KvCacheManager(num_blocks=2, block_size=4, hasher=BlockHasher("model", 8))
    table = manager.open(PROMPT, "")
    manager.reserve(table, 8)
    for bad in (9, 13):
        with pytest.raises(ValueError, match=rf"num_computed is {bad}; allowed are 0 .* to 8"):
            manager.commit(table, PROMPT, bad)
    manager.commit(table, PROMPT, 6)
    with pytest.raises(ValueError, match="num_computed is 5; allowed are 6"):
        manager.commit(table, PROMPT, 5)
    manager.close(table)
    for use in (manager.close, lambda t: manager.reserve(t, 1), lambda t: manager.trim(t, 0)):
        with pytest.raises(ValueError, match="closed, or belongs to another manager"):
            use(table)


def test_invariants_notice_a_writable_shared_block() -> None:
    manager = new_manager()
    table = run(manager, PROMPT)
    table.num_computed = 4
    with pytest.raises(AssertionError, match="shared or matchable"):
        manager.check_invariants()


def test_books_are_kept_without_torch() -> None:
    code = "import sys, workers.kvcache.manager, workers.kvcache.events; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
