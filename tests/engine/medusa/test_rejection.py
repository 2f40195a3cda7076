"""Rule `rejection` over trees of Medusa guesses: what the verifier emits follows the target."""

from collections import Counter
from typing import Any, cast

import pytest
import torch

from tests.chi_square import p_value
from tests.fakes.engines import make_request
from tests.fakes.path_runner import table_logits
from workers.core.proposal import Proposal, TreeBudget
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.core.statistics import GenerationStats
from workers.medusa.tree import choose_tree, usual_accuracies
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.medusa import MedusaProposer
from workers.sampling.rejection import RejectionRule
from workers.sampling.request_sampler import RequestSampler

VOCAB = 5
PROMPT = (1, 2, 3)
SAMPLING = SamplingParams(ignore_eos=True)
COUNT = 500
FAILURE_PROBABILITY = 1e-4  # of each test, if all is right


class FixedHeads:
    """Three heads that always say the same; token 4 is not in their vocabulary."""

    token_map = torch.tensor([0, 1, 2, 3])
    device = torch.device("cpu")
    num_heads = 3

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([table_logits((head,), 4, sharpness=1.5, salt=1) for head in range(3)])
        return rows.expand(len(hidden), -1, -1)


def request(seed: int) -> Any:
    return make_request(PROMPT, SAMPLING, seed=seed, rule=VerificationRule.REJECTION)


def draft(budget: TreeBudget) -> list[Proposal]:
    choices = choose_tree(usual_accuracies(3), 12)
    proposer = MedusaProposer(cast(Any, FixedHeads()), choices, vocab_size=VOCAB, eos_token_ids=())
    for seed in range(COUNT):
        proposer.open(DraftSession(seed, request(seed), PROMPT[:-1], GenerationStats()))
    hidden = torch.zeros(1, 8)
    proposer.commit([CommitUpdate(seed, len(PROMPT) - 1, PROMPT[-1:], budget, hidden=hidden) for seed in range(COUNT)])
    found = proposer.collect({seed: Want(len(PROMPT), budget) for seed in range(COUNT)})
    return [found[seed] for seed in range(COUNT)]


def target_logits(path: tuple[int, ...]) -> torch.Tensor:
    return table_logits(path, VOCAB, sharpness=1.0, salt=2)


def emitted(seed: int, proposal: Proposal) -> tuple[int, ...]:
    tree = proposal.tree
    paths = [PROMPT, *((*PROMPT, *(tree.token_ids[n] for n in tree.path(i))) for i in range(len(tree)))]
    logits = torch.stack([target_logits(path) for path in paths])
    proposal.check_distributions(VOCAB)
    return RejectionRule().verify(proposal, logits, RequestSampler(request(seed), VOCAB, ())).token_ids


def assert_follows(counts: Counter[int], probs: torch.Tensor) -> None:
    expected = counts.total() * probs.double()
    assert p_value([counts[token] for token in range(VOCAB)], expected) > FAILURE_PROBABILITY, counts


@pytest.mark.parametrize("budget", [TreeBudget(3, 4, 12), TreeBudget(3, 2, 5), TreeBudget(3, 1, 3)], ids=str)
def test_emitted_tokens_follow_the_target(budget: TreeBudget) -> None:
    firsts = Counter[int]()
    seconds: dict[int, Counter[int]] = {token: Counter() for token in range(VOCAB)}
    proposals = draft(budget)
    assert {p.tree.parent_indices for p in proposals} == {proposals[0].tree.parent_indices}, "the tree is static"
    for seed, proposal in enumerate(proposals):
        tokens = emitted(seed, proposal)
        firsts[tokens[0]] += 1
        if len(tokens) > 1:
            seconds[tokens[0]][tokens[1]] += 1
    assert_follows(firsts, target_logits(PROMPT).softmax(0))
    for token, counts in seconds.items():
        if sum(counts.values()) >= 60:
            assert_follows(counts, target_logits((*PROMPT, token)).softmax(0))
