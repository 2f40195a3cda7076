"""The blocks of one sequence, as slots: token i lives in `slots[i]`."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["BlockTable", "Slots"]

Slots = npt.NDArray[np.int64]


class BlockTable:
    """Blocks of one sequence. Read it freely; only `KvCacheManager` changes it.

    The first `num_computed` slots hold the K/V of committed tokens and are never written again: other sequences may
    share them. A step writes to later slots only. `slots` is replaced, never changed in place, so that slices taken
    for a step stay what they were.
    """

    def __init__(self, block_size: int, seed: bytes, generation: int) -> None:
        self.block_size = block_size
        self.slots: Slots = np.empty(0, dtype=np.int64)  # [capacity]
        self.num_cached_tokens = 0  # matched in the prefix cache at `open`; a multiple of block_size
        self.num_computed = 0  # tokens whose K/V is in place, matched ones included
        self.blocks: list[int] = []
        self.digests: list[bytes] = []  # of the first full computed blocks
        self.seed = seed
        self.generation = generation  # of the prefix cache at `open`

    @property
    def capacity(self) -> int:
        """Tokens (and tree nodes) that fit."""
        return len(self.blocks) * self.block_size

    @property
    def block_ids(self) -> tuple[int, ...]:
        return tuple(self.blocks)

    @property
    def last_digest(self) -> bytes:
        """What the digest of the next full block is chained to."""
        return self.digests[-1] if self.digests else self.seed

    def append(self, blocks: Sequence[int]) -> None:
        """Grow at the end."""
        starts = np.asarray(blocks, dtype=np.int64)[:, None] * self.block_size
        new_slots = (starts + np.arange(self.block_size)).reshape(-1)
        self.slots = np.concatenate([self.slots, new_slots])
        self.blocks.extend(blocks)

    def cut(self, num_blocks: int) -> list[int]:
        """Keep the first `num_blocks`; returns the others."""
        rest = self.blocks[num_blocks:]
        del self.blocks[num_blocks:]
        self.slots = self.slots[: self.capacity]
        return rest
