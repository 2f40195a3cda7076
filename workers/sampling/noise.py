"""Counter-based noise: the same numbers in every process and on every device, without exchanging any.

`_key` folds (seed, position, stream) into 64 bits with the splitmix64 finaliser, in host integers. A vector of
counters (token ids) is then hashed under that key in 32-bit integer arithmetic only, so that any language or device
reproduces it; products wrap, shifts are logical:

    h = counter ^ low32(key)
    h = (h ^ h >> 16) * 0x21f0aaad
    h = ((h ^ h >> 15) ^ high32(key)) * 0x735a2d97
    h = h ^ h >> 15
    u = (h + 0.5) / 2^32                       float64, in (0, 1)
    gumbel = float32(-log(-log(u)))            both logarithms in float64

The second half of the key enters in the middle: without it, the noise of two positions whose keys differ in low bits
only would be a permutation of each other. Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
(counter-based generators); Steele et al., "Fast splittable pseudorandom number generators" (splitmix64); Wellons,
"Prospecting for hash functions" (shifts and factors of the 32-bit hash).
"""

import math
from collections import OrderedDict
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from workers.core.seeds import GOLDEN, mix64

__all__ = ["NoiseCache", "gumbel_noise", "gumbel_noise_of", "noise_at_least", "uniform"]

_NOISE_STREAM = 0
_FROM_SIGNED = (1 << 31) + 0.5  # from h - 2^31 to h + 0.5

Bits = TypeVar("Bits", torch.Tensor, npt.NDArray[np.int32])  # both wrap on overflow


def gumbel_noise(seed: int, position: int, vocab_size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Gumbel(0, 1) noise of every token at `position` (index of the token in prompt + output). float32 [vocab]."""
    bits = _hash32(torch.arange(vocab_size, dtype=torch.int32, device=device), _key(seed, position, _NOISE_STREAM))
    values = bits.to(torch.float64).add_(_FROM_SIGNED).mul_(2.0**-32)
    return values.log_().neg_().log_().neg_().to(torch.float32)


def gumbel_noise_of(seed: int, position: int, token_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The entries of `gumbel_noise` that belong to `token_ids` [n], on the host. float32 [n]."""
    bits = _hash32(token_ids.astype(np.int32), _key(seed, position, _NOISE_STREAM))
    noise: npt.NDArray[np.float64] = -np.log(-np.log((bits + _FROM_SIGNED) * 2.0**-32))
    return noise.astype(np.float32)


def noise_at_least(level: float, seed: int, position: int, vocab_size: int) -> npt.NDArray[np.bool_]:
    """Tokens with a noise of at least `level`, and perhaps a few that are just below it. bool [vocab]."""
    bits = _hash32(np.arange(vocab_size, dtype=np.int32), _key(seed, position, _NOISE_STREAM))
    lowest = math.floor(math.exp(-math.exp(-level)) * 2.0**32) - 256  # the least hash; 256 = far above rounding
    return bits >= max(lowest, 0) - (1 << 31)


def uniform(seed: int, position: int, stream: int) -> float:
    """A number in (0, 1) with 48 random bits; independent of the Gumbel noise and of every other `stream` (>= 1)."""
    if stream == _NOISE_STREAM:
        raise ValueError("stream 0 is the Gumbel noise's; use streams from 1")
    return ((mix64(_key(seed, position, stream) ^ GOLDEN) >> 16) + 0.5) * 2.0**-48


class NoiseCache:
    """Noise of one request's last few positions: all nodes of one depth of a tree share it.

    `token_ids` (int64 [n]) restricts it to the noise of those tokens, in their order.
    """

    def __init__(
        self,
        seed: int,
        vocab_size: int,
        device: torch.device | str = "cpu",
        capacity: int = 8,
        token_ids: torch.Tensor | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.seed = seed
        self.vocab_size = vocab_size
        self.device = device
        self._capacity = capacity
        self._token_ids = None if token_ids is None else token_ids.cpu().numpy()
        self._noise: OrderedDict[int, torch.Tensor] = OrderedDict()

    def at(self, position: int) -> torch.Tensor:
        """`gumbel_noise` at `position`, float32 [vocab]; shared, so never changed in place."""
        noise = self._noise.get(position)
        if noise is None:
            noise = self._noise[position] = self._compute(position)
            if len(self._noise) > self._capacity:
                self._noise.popitem(last=False)
        return noise

    def _compute(self, position: int) -> torch.Tensor:
        if self._token_ids is None:
            return gumbel_noise(self.seed, position, self.vocab_size, self.device)
        return torch.from_numpy(gumbel_noise_of(self.seed, position, self._token_ids)).to(self.device)


def _key(seed: int, position: int, stream: int) -> int:
    """64 bits from (seed, position, stream), each an integer in [0, 2^64)."""
    return mix64(mix64(mix64(seed + GOLDEN) + position * GOLDEN + 1) ^ mix64(stream))


def _hash32(bits: Bits, key: int) -> Bits:
    """The hash of the module docstring less 2^31, on int32 [n] in place; the masks make its shifts logical.

    (int32 holds the bits of h; flipping the top one makes the signed value h - 2^31.)
    """
    bits ^= _signed(key & 0xFFFFFFFF)
    bits ^= (bits >> 16) & 0xFFFF
    bits *= 0x21F0AAAD
    bits ^= (bits >> 15) & 0x1FFFF
    bits ^= _signed(key >> 32)
    bits *= 0x735A2D97
    bits ^= (bits >> 15) & 0x1FFFF
    bits ^= -(1 << 31)
    return bits


def _signed(word: int) -> int:
    """The int32 with the bits of a 32-bit word."""
    return word - (1 << 32) if word >= 1 << 31 else word
