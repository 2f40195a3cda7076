"""The shortcut chooses the very token that the plain formula chooses."""

import math

import pytest
import torch

from workers.sampling.filters import best_token
from workers.sampling.gumbel_max import gumbel_argmax
from workers.sampling.noise import gumbel_noise, noise_at_least

VOCAB = 8192


@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0, 4.0, 8.0, 30.0])
def test_equals_the_plain_formula(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    chosen = set()
    for position in range(40):
        log_probs = (torch.randn(VOCAB, generator=generator) * scale).log_softmax(0)
        expected = best_token(log_probs + gumbel_noise(3, position, VOCAB))
        assert gumbel_argmax(log_probs, 3, position) == expected
        chosen.add(bool(log_probs[expected] < -7.0))
    if scale in (2.0, 4.0):
        assert chosen == {True, False}, "both likely and lucky tokens should have won"


def test_few_tokens_left() -> None:
    for position in range(30):
        log_probs = torch.full((VOCAB,), -math.inf)
        log_probs[[7, 99, 8000]] = math.log(1 / 3)
        expected = best_token(log_probs + gumbel_noise(3, position, VOCAB))
        assert gumbel_argmax(log_probs, 3, position, few=True) == expected
        assert gumbel_argmax(log_probs, 3, position) == expected


def test_a_certain_token_wins() -> None:
    log_probs = torch.full((VOCAB,), -100.0)
    log_probs[5] = 0.0
    assert gumbel_argmax(log_probs, 1, 2) == 5


@pytest.mark.parametrize("level", [-4.0, -1.0, 0.0, 3.0, 8.0, 30.0])
def test_noise_at_least_misses_none(level: float) -> None:
    noise = gumbel_noise(5, 6, 49_152)
    found = noise_at_least(level, 5, 6, 49_152)
    assert found[(noise >= level).numpy()].all()
    assert int(found.sum()) <= int((noise >= level - 0.01).sum())
