"""The test that other tests rest on."""

import math

import numpy as np
import pytest

from tests.chi_square import p_value


def test_known_values() -> None:
    assert p_value([50, 50], [50, 50]) == 1.0
    # Two degrees of freedom: exp(-x/2). Four: exp(-x/2) (1 + x/2). One: what lies beyond a number of deviations.
    assert p_value([12, 9, 9], [10, 10, 10]) == pytest.approx(math.exp(-0.3))
    assert p_value([14, 8, 8, 10, 10], [10] * 5) == pytest.approx(math.exp(-1.2) * 2.2)
    assert p_value([70, 30], [50, 50]) == pytest.approx(math.erfc(4 / math.sqrt(2)))


def test_small_values_keep_their_digits() -> None:
    assert p_value([80, 10, 10], [33, 33, 34]) == pytest.approx(math.exp(-(47**2 / 33 + 23**2 / 33 + 24**2 / 34) / 2))


def test_it_is_uniform_for_what_follows_and_small_for_what_does_not() -> None:
    draw, probs = np.random.default_rng(1), np.array([0.1, 0.2, 0.3, 0.4])
    values = np.array([p_value(draw.multinomial(1000, probs), 1000 * probs) for _ in range(2000)])
    assert np.abs(np.quantile(values, [0.1, 0.5, 0.9]) - [0.1, 0.5, 0.9]).max() < 0.05
    assert p_value(draw.multinomial(5000, probs), 5000 * np.array([0.15, 0.15, 0.3, 0.4])) < 1e-8
