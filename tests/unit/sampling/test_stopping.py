"""No rule emits anything after an end token, nor more than `max_tokens`."""

from typing import Any

import pytest
import torch

from tests.unit.sampling.harness import request
from workers.core.proposal import DraftDistribution, Proposal
from workers.core.sampling_params import VerificationRule
from workers.core.token_tree import TokenTree
from workers.sampling.base import Verdict
from workers.sampling.request_sampler import RequestSampler
from workers.sampling.rules import rule_for

VOCAB, EOS = 6, 5
CHAIN = (1, 2, 3, 4)
RULES = pytest.mark.parametrize("rule", list(VerificationRule))
TEMPERATURES = pytest.mark.parametrize("temperature", [0.0, 1.0])


def verify(
    rule: VerificationRule,
    says: tuple[int, ...],
    drafted: tuple[int, ...],
    max_tokens: int | None = None,
    **sampling: Any,
) -> Verdict:
    """A target that is certain of `says` (one token per depth, more logits than any noise) and a drafted chain."""
    logits = torch.zeros(1 + len(drafted), VOCAB)
    for row in range(1 + len(drafted)):
        logits[row, says[row]] = 100.0
    tree = TokenTree.chain(drafted)
    certain = {node - 1: DraftDistribution((token,), (1.0,)) for node, token in enumerate(drafted)}
    sampler = RequestSampler(request(1, **sampling), VOCAB, (EOS,))
    return rule_for(rule).verify(Proposal(2, tree, certain), logits, sampler, max_tokens)


@RULES
@TEMPERATURES
def test_everything_accepted_yields_a_bonus_token(rule: VerificationRule, temperature: float) -> None:
    verdict = verify(rule, (*CHAIN, 0), CHAIN, temperature=temperature)
    assert verdict == Verdict((0, 1, 2, 3), (*CHAIN, 0))


@RULES
@TEMPERATURES
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5, 6])
def test_never_more_than_max_tokens(rule: VerificationRule, temperature: float, max_tokens: int) -> None:
    verdict = verify(rule, (*CHAIN, 0), CHAIN, max_tokens, temperature=temperature)
    assert verdict.token_ids == (*CHAIN, 0)[:max_tokens]
    assert verdict.accepted_nodes == (0, 1, 2, 3)[:max_tokens]


@RULES
@TEMPERATURES
def test_an_accepted_end_token_is_the_last(rule: VerificationRule, temperature: float) -> None:
    verdict = verify(rule, (1, EOS, 3, 0), (1, EOS, 3), temperature=temperature)
    assert verdict == Verdict((0, 1), (1, EOS))


@RULES
@TEMPERATURES
def test_a_recovered_end_token_is_the_last(rule: VerificationRule, temperature: float) -> None:
    verdict = verify(rule, (1, EOS, 3, 0), (1, 2, 3), temperature=temperature)
    assert verdict == Verdict((0,), (1, EOS))


@RULES
@TEMPERATURES
def test_ignore_eos_goes_on_but_stop_tokens_still_end(rule: VerificationRule, temperature: float) -> None:
    says, drafted = (EOS, 2, 3, 0), (EOS, 2, 3)
    assert verify(rule, says, drafted, temperature=temperature, ignore_eos=True).token_ids == says
    stopped = verify(rule, says, drafted, temperature=temperature, ignore_eos=True, stop_token_ids=(2,))
    assert stopped == Verdict((0, 1), (EOS, 2))


@RULES
@TEMPERATURES
def test_min_tokens_counts_the_path(rule: VerificationRule, temperature: float) -> None:
    """The target wants the end everywhere; it gets it at the third token, drafted or not."""
    says = (EOS, EOS, EOS, EOS)
    verdict = verify(rule, says, (EOS, EOS, EOS), temperature=temperature, min_tokens=2)
    assert EOS not in verdict.token_ids
    logits = torch.zeros(4, VOCAB)
    logits[:, EOS] = 200.0
    logits[:, 1] = 100.0
    sampler = RequestSampler(request(1, temperature=temperature, min_tokens=2), VOCAB, (EOS,))
    verdict = rule_for(rule).verify(Proposal(2, TokenTree.chain((1, 1, EOS))), logits, sampler)
    assert verdict == Verdict((0, 1, 2), (1, 1, EOS))


def test_ends() -> None:
    sampler = RequestSampler(request(stop_token_ids=(3,)), VOCAB, (EOS,))
    assert [sampler.ends(token) for token in range(VOCAB)] == [False, False, False, True, False, True]
