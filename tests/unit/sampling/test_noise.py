"""Quality of the counter-based noise. Statistical bounds are 5 sigma or p > 1e-5; all inputs are fixed."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.chi_square import p_value
from workers.core.seeds import derive_seed
from workers.sampling.noise import NoiseCache, gumbel_noise, gumbel_noise_of, uniform

VOCAB = 49_152
KEYS = [(0, 0), (0, 1), (1, 0), (1, 1), (2**64 - 1, 0), (2**63, 4096), (12345, 2**31), (2**32, 7)]


def uniforms(seed: int, position: int, size: int = VOCAB) -> npt.NDArray[np.float64]:
    """The u of u -> -log(-log(u)), recovered from the noise."""
    return np.asarray(torch.exp(-torch.exp(-gumbel_noise(seed, position, size).double())))


def chi_square_p(counts: npt.NDArray[np.int64]) -> float:
    return p_value(counts, np.full(counts.shape, counts.sum() / counts.size))


def correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """In units of its standard deviation under independence."""
    return float(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a))


def test_values_are_frozen() -> None:
    """Drafters of other makes compute the same numbers: these may never change."""
    assert gumbel_noise(0, 0, 3).tolist() == [1.109468698501587, -1.6475671529769897, 0.6301754713058472]
    assert gumbel_noise(2**64 - 1, 123_456, 3).tolist() == [
        0.5084941387176514,
        -0.19251684844493866,
        -0.8965329527854919,
    ]
    assert uniform(7, 11, 2) == 0.7681398924057685
    assert derive_seed(7, 1) == 9672475392221035855


@pytest.mark.parametrize(("seed", "position"), [(42, 0), (2**64 - 1, 99)])
def test_matches_the_documented_formula(seed: int, position: int) -> None:
    mask64, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(value: int) -> int:
        value &= mask64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask64
        value = (value ^ value >> 27) * 0x94D049BB133111EB & mask64
        return value ^ value >> 31

    def gumbel(token: int) -> float:
        key = mix(mix(mix(seed + golden) + position * golden + 1) ^ mix(0))
        h = token ^ key & 0xFFFFFFFF
        h = (h ^ h >> 16) * 0x21F0AAAD & 0xFFFFFFFF
        h = (h ^ h >> 15 ^ key >> 32) * 0x735A2D97 & 0xFFFFFFFF
        h ^= h >> 15
        return -math.log(-math.log((h + 0.5) / 2**32))

    noise = gumbel_noise(seed, position, 2000)
    torch.testing.assert_close(noise, torch.tensor([gumbel(t) for t in range(2000)]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("seed", "position"), KEYS)
def test_uniform_over_tokens(seed: int, position: int) -> None:
    u = uniforms(seed, position)
    assert chi_square_p(np.histogram(u, 256, (0, 1))[0]) > 1e-5
    assert abs(correlation(u[:-1], u[1:])) < 5
    pairs = np.histogram2d(u[0::2], u[1::2], 16, ((0, 1), (0, 1)))[0]
    assert chi_square_p(pairs.astype(np.int64)) > 1e-5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((5, 9), (5, 10)),
        ((5, 9), (6, 9)),
        ((5, 9), (9, 5)),
        ((0, 0), (2**32, 0)),
        ((0, 0), (0, 2**16)),
        ((1, 2), (2, 1)),
    ],
)
def test_neighbouring_keys_are_independent(one: tuple[int, int], other: tuple[int, int]) -> None:
    u, v = uniforms(*one), uniforms(*other)
    pairs = np.histogram2d(u, v, 16, ((0, 1), (0, 1)))[0]
    assert chi_square_p(pairs.astype(np.int64)) > 1e-5
    assert abs(correlation(u, v)) < 5
    assert abs(correlation(u[:-1], v[1:])) < 5
    assert len(np.intersect1d(u, v)) < 500  # float32 makes about 100 equal; a permutation would make all


def test_uniform_over_positions_and_seeds() -> None:
    over_positions = np.stack([uniforms(3, position, 4) for position in range(800)])
    over_seeds = np.stack([uniforms(seed, 3, 4) for seed in range(800)])
    for u in (over_positions, over_seeds):
        for token in range(4):
            assert chi_square_p(np.histogram(u[:, token], 32, (0, 1))[0]) > 1e-5
            assert abs(correlation(u[:-1, token], u[1:, token])) < 5
        assert chi_square_p(np.bincount(u.argmax(1), minlength=4)) > 1e-5


@pytest.mark.parametrize("bit", [0, 1, 5, 10, 14])
def test_every_token_bit_flips_half_of_the_hash(bit: int) -> None:
    """Avalanche, on the top 24 bits of the hash (what survives float32)."""
    h = (uniforms(17, 23) * 2**24).astype(np.int64)
    flipped = h[: 2**15] ^ h[np.arange(2**15) ^ (1 << bit)]
    for out in range(8, 24):  # lower bits are lost to float32 near u = 1
        assert abs((flipped >> out & 1).mean() - 0.5) < 0.02


def test_gumbel_moments_and_range() -> None:
    noise = torch.cat([gumbel_noise(seed, 1, VOCAB) for seed in range(8)]).double()
    assert abs(float(noise.mean()) - 0.57722) < 5 * 1.2825 / math.sqrt(len(noise))
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.02
    assert bool(noise.isfinite().all())


def test_some_tokens_alone() -> None:
    tokens = np.array([0, 5, 77, VOCAB - 1])
    for position in range(50):
        assert gumbel_noise_of(9, position, tokens).tolist() == gumbel_noise(9, position, VOCAB)[tokens].tolist()
    assert tokens.tolist() == [0, 5, 77, VOCAB - 1]


def test_vocabulary_size_does_not_matter() -> None:
    assert torch.equal(gumbel_noise(9, 4, 1001), gumbel_noise(9, 4, VOCAB)[:1001])


def test_threads_do_not_matter() -> None:
    alone = gumbel_noise(1, 2, VOCAB)
    torch.set_num_threads(2)
    assert torch.equal(gumbel_noise(1, 2, VOCAB), alone)


def test_uniform_streams_are_independent() -> None:
    draws = np.array([[uniform(1, position, stream) for stream in (1, 2, 3)] for position in range(1000)])
    assert draws.min() > 0
    assert draws.max() < 1
    for stream in range(3):
        assert chi_square_p(np.histogram(draws[:, stream], 32, (0, 1))[0]) > 1e-5
    noise = np.array([uniforms(1, position, 1)[0] for position in range(1000)])
    for other in (draws[:, 1], draws[:, 2], noise):
        assert abs(correlation(draws[:, 0], other)) < 5


def test_stream_of_the_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="streams from 1"):
        uniform(1, 2, 0)


def test_derived_seeds_differ_and_the_first_is_the_requests_own() -> None:
    seeds = {derive_seed(seed, index) for seed in (0, 1, 2**64 - 1) for index in range(16)}
    assert derive_seed(99, 0) == 99
    assert len(seeds) == 48
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_cache_keeps_the_last_positions() -> None:
    cache = NoiseCache(3, 100, capacity=2)
    first = cache.at(1)
    assert cache.at(1) is first
    cache.at(2)
    cache.at(3)
    again = cache.at(1)
    assert again is not first
    assert torch.equal(again, gumbel_noise(3, 1, 100))
    with pytest.raises(ValueError, match="at least 1"):
        NoiseCache(3, 100, capacity=0)
