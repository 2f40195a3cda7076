"""Rule `typical`: Medusa's threshold, the longest plausible path, and one sampled token."""

import math
from typing import Any

import pytest
import torch

from tests.unit.sampling.harness import request
from workers.core.proposal import Proposal
from workers.core.token_tree import TokenTree
from workers.sampling.request_sampler import RequestSampler
from workers.sampling.typical import TypicalRule

VOCAB = 6


def rows(*probs: tuple[float, ...]) -> torch.Tensor:
    """Logits of distributions that list the first tokens' probabilities."""
    table = torch.full((len(probs), VOCAB), 1e-9)
    for row, listed in enumerate(probs):
        table[row, : len(listed)] = torch.tensor(listed)
    return table.log()


def accepted(tree: TokenTree, logits: torch.Tensor, rule: TypicalRule | None = None, **sampling: Any) -> list[int]:
    sampler = RequestSampler(request(3, **sampling), VOCAB, ())
    return list((rule or TypicalRule()).verify(Proposal(2, tree), logits, sampler).accepted_nodes)


@pytest.mark.parametrize(("prob", "kept"), [(0.13, True), (0.11, False)])
def test_threshold_follows_the_entropy(prob: float, kept: bool) -> None:
    """min(epsilon, delta * exp(-entropy)) from the formula, at a node where the entropy decides."""
    listed = (1 - prob, prob)
    entropy = -sum(p * math.log(p) for p in listed)
    rule = TypicalRule(epsilon=1.0, delta=0.12 * math.exp(entropy))
    assert accepted(TokenTree.chain([1]), rows(listed, (1.0,)), rule) == ([0] if kept else [])


@pytest.mark.parametrize(("prob", "kept"), [(0.095, True), (0.085, False)])
def test_epsilon_bounds_the_threshold_of_certain_targets(prob: float, kept: bool) -> None:
    assert accepted(TokenTree.chain([1]), rows((1 - prob, prob), (1.0,))) == ([0] if kept else [])


def test_longest_path_wins_then_the_likelier() -> None:
    tree = TokenTree((0, 1, 2, 3), (-1, -1, 1, 1))
    first, second = (0.6, 0.4), (0.0, 0.0, 0.4, 0.6)
    logits = rows(first, (1.0,), second, (1.0,), (1.0,))
    assert accepted(tree, logits) == [1, 3]


def test_ends_with_a_sample_of_the_target() -> None:
    sampler = RequestSampler(request(3), VOCAB, ())
    logits = rows((1.0,), (0.0, 0.0, 1.0))
    verdict = TypicalRule().verify(Proposal(2, TokenTree.chain([0])), logits, sampler)
    assert verdict.token_ids == (0, 2)


def test_filtered_tokens_are_never_plausible() -> None:
    assert accepted(TokenTree.chain([1]), rows((0.6, 0.4), (1.0,)), top_k=1) == []


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.3), (0.1, 1.5)])
def test_bad_thresholds(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\]"):
        TypicalRule(epsilon, delta)
