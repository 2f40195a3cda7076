"""Rule `coupled`: token-for-token what plain decoding emits, whatever is proposed; and exact in distribution."""

from typing import Any

import pytest
import torch

from tests.fakes.table_model import TableModel
from tests.unit.sampling.harness import (
    PROMPT,
    Propose,
    best,
    coupled,
    generate,
    hostile,
    nothing,
    plain,
    request,
    sampled,
    sequence_test,
)
from workers.core.proposal import Proposal
from workers.core.sampling_params import VerificationRule
from workers.core.token_tree import TokenTree
from workers.sampling.coupled import CoupledRule
from workers.sampling.noise import gumbel_noise
from workers.sampling.request_sampler import RequestSampler
from workers.sampling.rules import rule_for

TARGET = TableModel.random(8, seed=1, scale=1.2)
DRAFT = TARGET.perturbed(seed=2, scale=0.7)
LENGTH = 10
PROPOSERS = [
    pytest.param(coupled(DRAFT, depth=3, width=2), id="drafter"),
    pytest.param(coupled(DRAFT, depth=5, width=1), id="chain"),
    pytest.param(best(DRAFT, depth=2, width=3), id="deterministic"),
    pytest.param(hostile(8, seed=3), id="hostile"),
]
SAMPLINGS = [
    pytest.param({}, id="temperature-1"),
    pytest.param({"temperature": 0.3, "top_p": 0.9}, id="cool-top-p"),
    pytest.param({"top_k": 3, "min_p": 0.05, "temperature": 1.7}, id="hot-top-k-min-p"),
    pytest.param(
        {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3, "logit_bias": {3: 1.5}},
        id="penalties-and-bias",
    ),
    pytest.param({"min_tokens": 4, "stop_token_ids": (5,)}, id="stop"),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("propose", PROPOSERS)
def test_equals_plain_decoding(propose: Propose, sampling: dict[str, Any]) -> None:
    for seed in range(8):
        asked = request(seed, **sampling)
        assert generate(TARGET, asked, propose, CoupledRule(), LENGTH, eos=(7,)) == plain(TARGET, asked, LENGTH, (7,))


def test_resumption_continues_the_same_text() -> None:
    for seed in range(10):
        whole = plain(TARGET, request(seed, presence_penalty=0.5), LENGTH)
        resumed = request(seed, output=whole[:4], presence_penalty=0.5)
        assert generate(TARGET, resumed, hostile(8, seed), CoupledRule(), LENGTH) == whole


@pytest.mark.parametrize("rule", list(VerificationRule))
@pytest.mark.parametrize(
    "propose",
    [
        pytest.param(coupled(DRAFT, depth=3, width=2), id="drafter"),
        pytest.param(sampled(DRAFT, depth=2, width=2), id="with-distributions"),
        pytest.param(hostile(8, seed=5), id="hostile"),
        pytest.param(nothing, id="plain"),
    ],
)
def test_temperature_0_is_argmax_under_every_rule(propose: Propose, rule: VerificationRule) -> None:
    for seed in range(3):
        asked = request(seed, temperature=0.0)
        assert generate(TARGET, asked, propose, rule_for(rule), LENGTH) == TARGET.greedy(PROMPT, LENGTH)


def test_seeds_differ() -> None:
    assert len({plain(TARGET, request(seed), LENGTH) for seed in range(20)}) > 15


def test_marginal_distribution_over_seeds_is_the_targets() -> None:
    """A correct rule fails this for one in 10,000 choices of seeds."""
    assert sequence_test(TARGET, nothing, CoupledRule(), length=2, samples=600) > 1e-4


def test_wrong_noise_is_noticed() -> None:
    class OneNoise(CoupledRule):
        def verify(self, proposal, logits, sampler, max_tokens=None):  # type: ignore[no-untyped-def]
            logits = logits + gumbel_noise(sampler.seed, 0, 8)  # the same noise at every position, on top
            return super().verify(proposal, logits, sampler, max_tokens)

    assert sequence_test(TARGET, nothing, OneNoise(), length=2, samples=600) < 1e-9


def test_rows_that_the_walk_does_not_visit_are_not_read() -> None:
    for seed in range(20):
        sampler = RequestSampler(request(seed), 8, ())
        proposal = coupled(DRAFT, depth=2, width=3)(sampler, PROMPT)
        logits = TARGET.tree_logits(PROMPT, proposal.tree)
        expected = CoupledRule().verify(proposal, logits, sampler)
        unvisited = torch.ones(len(logits), dtype=torch.bool)
        unvisited[[0, *(1 + node for node in expected.accepted_nodes)]] = False
        logits[unvisited] = torch.nan
        assert CoupledRule().verify(proposal, logits, sampler) == expected


def test_accepted_nodes_are_a_path_that_carries_the_tokens() -> None:
    for seed in range(30):
        sampler = RequestSampler(request(seed), 8, ())
        proposal = hostile(8, seed, max_nodes=20)(sampler, PROMPT)
        verdict = CoupledRule().verify(proposal, TARGET.tree_logits(PROMPT, proposal.tree), sampler)
        nodes = verdict.accepted_nodes
        assert not nodes or proposal.tree.path(nodes[-1]) == nodes
        assert tuple(proposal.tree.token_ids[n] for n in nodes) == verdict.token_ids[:-1]


def _first_token_acceptance(rule: VerificationRule, propose: Propose, target: TableModel) -> float:
    accepted = 0
    contexts = [(a, b) for a in range(8) for b in range(8)]
    for seed, context in enumerate(contexts * 2):
        sampler = RequestSampler(request(seed), 8, ())
        proposal = propose(sampler, context)
        logits = target.tree_logits(context, proposal.tree)
        accepted += bool(rule_for(rule).verify(proposal, logits, sampler).accepted_nodes)
    return accepted / 128


def test_shared_noise_raises_acceptance() -> None:
    """The order that speculation.md measured on a real model: chains, rejection >= coupled > deterministic."""
    draft = TARGET.perturbed(seed=9, scale=0.6)
    chain = _first_token_acceptance(VerificationRule.COUPLED, coupled(draft, depth=1, width=1), TARGET)
    classic = _first_token_acceptance(VerificationRule.REJECTION, sampled(draft, depth=1, width=1), TARGET)
    blind = _first_token_acceptance(VerificationRule.COUPLED, best(draft, depth=1, width=1), TARGET)
    assert chain > blind + 0.1
    assert classic > chain - 0.05
    tree = _first_token_acceptance(VerificationRule.COUPLED, coupled(draft, depth=1, width=3), TARGET)
    assert tree > _first_token_acceptance(VerificationRule.COUPLED, best(draft, depth=1, width=3), TARGET) + 0.1


@pytest.mark.parametrize(
    ("base_len", "rows", "max_tokens", "message"),
    [
        (2, 1, None, r"logits have shape \(1, 8\), expected \(2, 8\)"),
        (3, 2, None, "proposal is for 3 committed tokens, there are 2"),
        (2, 2, 0, "max_tokens must be at least 1, not 0"),
    ],
)
@pytest.mark.parametrize("rule", list(VerificationRule))
def test_arguments_that_do_not_fit(
    rule: VerificationRule, base_len: int, rows: int, max_tokens: int | None, message: str
) -> None:
    proposal = Proposal(base_len, TokenTree.chain([3]))
    with pytest.raises(ValueError, match=message):
        rule_for(rule).verify(proposal, torch.zeros(rows, 8), RequestSampler(request(), 8, ()), max_tokens)
