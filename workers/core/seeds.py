"""Seeds of the answers to one request, the same wherever they are computed."""

__all__ = ["GOLDEN", "derive_seed", "mix64"]

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the increment of splitmix64
MASK64 = (1 << 64) - 1


def derive_seed(seed: int, index: int) -> int:
    """Seed of answer `index` of a request with n > 1. Answer 0 keeps the request's own."""
    return seed if index == 0 else mix64(mix64(seed) + index * GOLDEN)


def mix64(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection of 64-bit integers."""
    value &= MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)
