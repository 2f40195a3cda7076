"""Pearson's chi-square test, for everything that claims to follow a distribution."""

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["p_value"]


def p_value(observed: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """How often counts lie this far from `expected`, or further, when those are what the distribution gives.

    `observed`, `expected`: [n] counts of n > 1 cells with the same sum; no expected count is 0. The tail of the
    chi-square distribution with n - 1 degrees of freedom is the regularized upper incomplete gamma function
    (Abramowitz and Stegun, 26.4.19).
    """
    found, wanted = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
    statistic = float(((found - wanted) ** 2 / wanted).sum())
    half_degrees = torch.tensor((wanted.size - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half_degrees, torch.tensor(statistic / 2, dtype=torch.float64)))
