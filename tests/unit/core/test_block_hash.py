"""Chained block hashes."""

import itertools
import random

import pytest

from workers.core.block_hash import BlockHasher, short_hash
from workers.core.errors import ConfigurationError

TOKENS = list(range(100, 110))


def test_only_full_blocks_are_hashed() -> None:
    hasher = BlockHasher("model", 4)
    assert [len(hasher.hashes(TOKENS[:n], "")) for n in (0, 3, 4, 7, 8, 10)] == [0, 0, 1, 1, 2, 2]


def test_a_longer_sequence_keeps_the_hashes_of_its_prefix() -> None:
    hasher = BlockHasher("model", 2)
    assert hasher.hashes(TOKENS, "")[:3] == hasher.hashes(TOKENS[:6], "")


def test_extending_equals_hashing_at_once() -> None:
    hasher = BlockHasher("model", 3)
    whole = list(hasher.extend(hasher.seed("salt"), TOKENS))
    first = list(hasher.extend(hasher.seed("salt"), TOKENS[:3]))
    assert first + list(hasher.extend(first[-1], TOKENS[3:])) == whole
    assert [short_hash(digest) for digest in whole] == hasher.hashes(TOKENS, "salt")


def test_hashes_fit_into_64_bits_and_do_not_depend_on_the_process() -> None:
    assert BlockHasher("model", 4).hashes(TOKENS, "salt") == [2705464027672412312, 2224237050094461696]


def test_everything_that_changes_the_content_changes_the_hash() -> None:
    variants = [
        BlockHasher("model", 2).hashes([1, 2, 3, 4], ""),
        BlockHasher("other", 2).hashes([1, 2, 3, 4], ""),
        BlockHasher("model", 2).hashes([1, 2, 3, 4], "salt"),
        BlockHasher("models", 2).hashes([1, 2, 3, 4], "alt"),
        BlockHasher("model", 2).hashes([2, 1, 3, 4], ""),
        BlockHasher("model", 2).hashes([3, 4, 1, 2], ""),
        BlockHasher("model", 1).hashes([1, 2, 3, 4], ""),
    ]
    everything = list(itertools.chain.from_iterable(variants))
    assert len(set(everything)) == len(everything)  # the second block, too, differs when only the first one does


def test_random_prefixes_have_distinct_digests() -> None:
    generator = random.Random(0)
    hasher = BlockHasher("model", 4)
    sequences = {tuple(generator.choices(range(3), k=8)) for _ in range(3000)}
    assert len({list(hasher.extend(hasher.seed(""), tokens))[-1] for tokens in sequences}) == len(sequences)


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5])
def test_bad_tokens_are_named(bad: int) -> None:
    with pytest.raises(ValueError, match=r"token ids must be integers in 0\.\.2\*\*32-1"):
        BlockHasher("model", 2).hashes([1, bad], "")


def test_block_size_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="block_size must be at least 1, not 0"):
        BlockHasher("model", 0)
