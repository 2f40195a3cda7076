"""Rule `rejection` against the exact distribution of a table model.

A correct rule falls below the p-value threshold 1e-4 for one in 10,000 choices of seeds (they are fixed here); every
wrong variant must fall below 1e-6 in the very same test.
"""

import numpy as np
import pytest

from tests.fakes.table_model import TableModel
from tests.unit.sampling.harness import (
    PROMPT,
    Propose,
    best,
    first_nodes,
    generate,
    hostile,
    nothing,
    request,
    sampled,
    sequence_test,
)
from workers.core.proposal import DraftDistribution, Proposal
from workers.core.token_tree import TokenTree
from workers.sampling.rejection import RejectionRule, Residual
from workers.sampling.request_sampler import RequestSampler

SAMPLES = 400
TARGET = TableModel.random(6, seed=1, scale=1.2)
DRAFT = TARGET.perturbed(seed=2, scale=1.2)
TREE = sampled(DRAFT, depth=2, width=3)


@pytest.mark.parametrize(
    "propose",
    [
        pytest.param(sampled(DRAFT, depth=2, width=1), id="chain"),
        pytest.param(TREE, id="tree"),
        pytest.param(sampled(DRAFT, depth=2, width=3, truncate_to=3), id="all-of-a-truncated-draft"),
        pytest.param(first_nodes(5, TREE), id="cut-siblings"),
        pytest.param(best(DRAFT, depth=2, width=2), id="point-mass"),
        pytest.param(hostile(6, seed=3), id="hostile"),
        pytest.param(nothing, id="plain"),
    ],
)
def test_sequences_follow_the_target(propose: Propose) -> None:
    assert sequence_test(TARGET, propose, RejectionRule(), length=2, samples=SAMPLES) > 1e-4


def test_longer_sequences_follow_the_target() -> None:
    target = TableModel.random(4, seed=5)
    propose = sampled(target.perturbed(seed=6, scale=1.0), depth=2, width=2)
    assert sequence_test(target, propose, RejectionRule(), length=3, samples=SAMPLES) > 1e-4


class _Swapped(Residual):
    """Accepts with draft / target instead of target / draft."""

    def accepts(self, token: int, uniform_number: float, certain: bool = False) -> bool:
        return uniform_number * float(self.target_mass[token]) < self._draft_prob(token) * self._total


class _NothingTakenOff(Residual):
    """Samples from the target, not from the residual, after a refusal."""

    def refuse(self, token: int, certain: bool = False) -> None:
        before = self.target_mass.copy()
        super().refuse(token)
        self.target_mass[:] = before
        self._total = float(before.sum())


class _TargetNotRenormalised(Residual):
    """Compares later siblings with the residual's mass instead of its probability."""

    def refuse(self, token: int, certain: bool = False) -> None:
        total = self._total
        super().refuse(token)
        self._total = total


class _DraftKeepsRefused(Residual):
    """Does not take the refused token off the draft: siblings as if drawn with replacement."""

    def refuse(self, token: int, certain: bool = False) -> None:
        before = self._draft_probs.copy()
        super().refuse(token)
        self._draft_probs = before


@pytest.mark.parametrize("wrong", [_Swapped, _NothingTakenOff, _TargetNotRenormalised, _DraftKeepsRefused])
def test_wrong_rules_are_noticed(wrong: type[Residual]) -> None:
    class Wrong(RejectionRule):
        residual_type = wrong

    assert sequence_test(TARGET, TREE, Wrong(), length=2, samples=SAMPLES) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 4])
def test_many_sequences_follow_the_target(width: int) -> None:
    propose = sampled(DRAFT, depth=2, width=width, truncate_to=5)
    assert sequence_test(TARGET, propose, RejectionRule(), length=3, samples=20_000) > 1e-4


@pytest.mark.parametrize("propose", [TREE, hostile(6, seed=4)])
def test_filtered_tokens_never_appear(propose: Propose) -> None:
    for seed in range(15):
        tokens = generate(TARGET, request(seed, top_k=2), propose, RejectionRule(), 4)
        for i, token in enumerate(tokens):
            assert token in TARGET.logits((*PROMPT, *tokens[:i])).topk(2).indices.tolist()


def test_a_draft_equal_to_the_target_is_always_accepted() -> None:
    propose = sampled(TARGET, depth=3, width=1)
    for seed in range(50):
        sampler = RequestSampler(request(seed), 6, ())
        proposal = propose(sampler, PROMPT)
        verdict = RejectionRule().verify(proposal, TARGET.tree_logits(PROMPT, proposal.tree), sampler)
        assert verdict.accepted_nodes == (0, 1, 2)
        assert len(verdict.token_ids) == 4


def test_acceptance_is_one_minus_total_variation() -> None:
    target, draft = TARGET.sequence_probs(PROMPT, 1), DRAFT.sequence_probs(PROMPT, 1)
    propose = sampled(DRAFT, depth=1, width=1)
    accepted = 0
    for seed in range(SAMPLES):
        sampler = RequestSampler(request(seed), 6, ())
        proposal = propose(sampler, PROMPT)
        logits = TARGET.tree_logits(PROMPT, proposal.tree)
        accepted += len(RejectionRule().verify(proposal, logits, sampler).accepted_nodes)
    rate = float(np.minimum(target, draft).sum())
    assert abs(accepted / SAMPLES - rate) < 4 * (rate * (1 - rate) / SAMPLES) ** 0.5  # 4 sigma: 6e-5


def test_a_child_outside_its_own_draft_counts_as_point_mass() -> None:
    residual = Residual(np.array([0.2, 0.3, 0.5]), DraftDistribution((0, 1), (0.5, 0.5)))
    assert residual.accepts(2, 0.49)
    assert not residual.accepts(2, 0.51)
    residual.refuse(2)
    assert residual.target_mass.tolist() == [0.2, 0.3, 0.0]
    assert residual.accepts(0, 0.79)  # (0.2 / 0.5) / 0.5
    assert not residual.accepts(0, 0.81)


def test_a_refusal_that_only_rounding_allows_keeps_the_target() -> None:
    residual = Residual(np.array([0.25, 0.75]), DraftDistribution((0, 1), (0.25, 0.75)))
    residual.refuse(0)
    assert residual.target_mass.tolist() == [0.25, 0.75]
    assert residual.sample(0.2) == 0
    assert residual.sample(0.3) == 1


@pytest.mark.parametrize("uniform_number", [0.0, 0.5, 1.0 - 2.0**-49])
def test_sampling_by_inversion_never_hits_a_token_without_mass(uniform_number: float) -> None:
    assert Residual(np.array([0.0, 0.3, 0.0, 0.7 - 1e-7, 0.0]), None).sample(uniform_number) in (1, 3)


def test_an_impossible_token_is_not_accepted() -> None:
    residual = Residual(np.array([0.0, 1.0]), DraftDistribution((0,), (1.0,)))
    assert not residual.accepts(0, 2.0**-49)


def test_draws_without_distributions_are_verified_in_order() -> None:
    """With two point masses the second one is tested against what the first one left."""
    tree = TokenTree((0, 1), (-1, -1))
    counts = np.zeros(6)
    for seed in range(SAMPLES):
        sampler = RequestSampler(request(seed), 6, ())
        logits = TARGET.tree_logits(PROMPT, tree)
        counts[RejectionRule().verify(Proposal(2, tree), logits, sampler, 1).token_ids[0]] += 1
    probs = TARGET.sequence_probs(PROMPT, 1)
    assert np.abs(counts / SAMPLES - probs).max() < 4 * (0.25 / SAMPLES) ** 0.5
