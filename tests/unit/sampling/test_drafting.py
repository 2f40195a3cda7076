"""Children as a drafter draws them."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from tests.unit.sampling.harness import chi_square_p
from workers.sampling.drafting import sample_children

PROBS = torch.tensor([0.4, 0.05, 0.3, 0.25])


def test_dropped_tokens_are_never_children() -> None:
    log_probs = torch.tensor([-math.inf, 0.0, -math.inf])
    tokens, distribution, survival = sample_children(log_probs, 3, 1, 1, 0)
    assert (tokens, distribution.token_ids, distribution.probs, survival) == ([1], (1,), (1.0,), [1.0])


def test_draws_follow_the_distribution_without_replacement() -> None:
    """Ordered triples against the product of renormalised probabilities; p > 1e-4, fixed seeds."""
    orders: list[tuple[int, ...]] = list(permutations(range(4), 3))
    expected = []
    for order in orders:
        left, prob = 1.0, 1.0
        for token in order:
            prob *= float(PROBS[token]) / left
            left -= float(PROBS[token])
        expected.append(prob)
    counts = np.zeros(len(orders))
    for seed in range(800):
        counts[orders.index(tuple(sample_children(PROBS.log(), 3, seed, 5, 1)[0]))] += 1
    assert chi_square_p(counts, np.array(expected)) > 1e-4


def test_distribution_is_truncated_renormalised_and_float32() -> None:
    log_probs = torch.randn(200).log_softmax(0)
    tokens, distribution, _ = sample_children(log_probs, 5, 1, 2, 3, truncate_to=16)
    distribution.check(200)
    assert distribution.token_ids == tuple(log_probs.argsort(descending=True)[:16].tolist())
    assert all(np.float32(p) == p for p in distribution.probs)
    assert set(tokens) <= set(distribution.token_ids)
    assert len(set(tokens)) == 5


def test_vanishing_probabilities_are_not_listed() -> None:
    _, distribution, _ = sample_children(torch.tensor([0.0, -200.0]), 1, 1, 2, 3)
    assert distribution.token_ids == (0,)


def test_nodes_and_positions_draw_independently() -> None:
    flat = torch.zeros(1000).log_softmax(0)
    draws = [
        sample_children(flat, 1, seed, position, salt, 1000)[0][0]
        for seed in (0, 1)
        for position in (0, 1)
        for salt in (-3, 0, 1, 2**70)
    ]
    assert len(set(draws)) > 12
    assert sample_children(flat, 3, 1, 1, 1) == sample_children(flat, 3, 1, 1, 1)


def test_survival_does_not_look_at_the_drawn_token() -> None:
    """Else a tree that is cut by survival would no longer be exact (rejection.py)."""
    first: set[float] = set()
    second: dict[int, set[float]] = {}
    for seed in range(30):
        tokens, _, survival = sample_children(PROBS.log(), 2, seed, 0, 0)
        first.add(survival[0])
        second.setdefault(tokens[0], set()).add(survival[1])
        assert 0.0 <= survival[1] <= survival[0] <= 1.0
    assert len(first) == 1
    assert len(second) > 1
    assert all(len(values) == 1 for values in second.values())


def test_bad_width() -> None:
    with pytest.raises(ValueError, match="width must be at least 1, not 0"):
        sample_children(PROBS, 0, 1, 1, 1)
