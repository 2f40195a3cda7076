"""Names for K/V blocks: a chained hash of everything that their content depends on.

The K/V of a block follow from the model, from the tokens in it and from all tokens before it. So::

    seed       = H(model fingerprint, block size, cache salt)
    digest[i]  = H(digest[i - 1], tokens of block i)          digest[-1] = seed

H is BLAKE2b with 256 bits: two different prefixes never meet, not even on purpose, hence equal digests mean equal
K/V and a hit needs no comparison of tokens. What leaves the process (KV events, routing) are the first 64 bits,
where a collision could only mislead a router's guess.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from workers.core.errors import ConfigurationError

__all__ = ["BlockHasher", "short_hash"]

DIGEST_BYTES = 32
SHORT_BYTES = 8


def short_hash(digest: bytes) -> int:
    """The 64 bits of a digest that stand for it outside the process."""
    return int.from_bytes(digest[:SHORT_BYTES], "little")


class BlockHasher:
    """Hashes the full blocks of token sequences for one model and one block size."""

    def __init__(self, fingerprint: str, block_size: int) -> None:
        if block_size < 1:
            raise ConfigurationError(f"block_size must be at least 1, not {block_size}")
        self.block_size = block_size
        self._fingerprint = fingerprint
        self._block = struct.Struct(f"<{block_size}I")

    def seed(self, cache_salt: str) -> bytes:
        """Start of the chain of every sequence with this salt."""
        fingerprint = self._fingerprint.encode()
        # The fingerprint's length keeps ("ab", "c") and ("a", "bc") apart.
        header = struct.pack("<II", self.block_size, len(fingerprint))
        return blake2b(header + fingerprint + cache_salt.encode(), digest_size=DIGEST_BYTES).digest()

    def extend(self, previous: bytes, token_ids: Sequence[int]) -> Iterator[bytes]:
        """Digests of the full blocks in `token_ids`, which follow the block (or seed) `previous`; lazily."""
        for start in range(0, len(token_ids) - self.block_size + 1, self.block_size):
            try:
                tokens = self._block.pack(*token_ids[start : start + self.block_size])
            except struct.error as error:
                raise ValueError(f"token ids must be integers in 0..2**32-1: {error}") from error
            previous = blake2b(previous + tokens, digest_size=DIGEST_BYTES).digest()
            yield previous

    def hashes(self, token_ids: Sequence[int], cache_salt: str) -> list[int]:
        """64-bit hashes of all full blocks, as KV events name them."""
        return [short_hash(digest) for digest in self.extend(self.seed(cache_salt), token_ids)]
