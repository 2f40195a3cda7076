"""Rule `rejection` over the drafter's own trees: what the verifier emits follows the target, however trees are cut."""

from collections import Counter

import numpy as np
import pytest
import torch

from tests.chi_square import p_value
from tests.fakes.path_runner import PathRunner, table_logits
from tests.unit.draft.rig import opening
from workers.core.block_hash import BlockHasher
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.draft.engine import DraftEngine
from workers.draft.messages import FrameIn, FrameOut
from workers.draft.sessions import DraftModelInfo
from workers.kvcache.manager import KvCacheManager
from workers.sampling.rejection import RejectionRule
from workers.sampling.request_sampler import RequestSampler

VOCAB = 5
PROMPT = (1, 2, 3)
SAMPLING = SamplingParams(ignore_eos=True)
FAILURE_PROBABILITY = 1e-4  # of each test, if all is right


def draft_logits(path: tuple[int, ...], vocab: int) -> torch.Tensor:
    return table_logits(path, vocab, sharpness=1.5, salt=1)


def target_logits(path: tuple[int, ...]) -> torch.Tensor:
    return table_logits(path, VOCAB, sharpness=1.0, salt=2)


def draft(num_sessions: int, budget: TreeBudget) -> dict[int, Proposal]:
    """First proposals of as many sessions, each with a seed of its own."""
    proposals: dict[int, Proposal] = {}

    def sink(_: int, frame: FrameOut) -> None:
        proposals.update({sent.session_id: sent.proposal for sent in frame.proposals})

    blocks = num_sessions * 4
    runner = PathRunner(blocks * 8, VOCAB, logits=draft_logits)
    engine = DraftEngine(
        runner,
        runner.storage,
        KvCacheManager(num_blocks=blocks, block_size=8, hasher=BlockHasher("fake", 8)),
        DraftModelInfo(VOCAB, 64, ()),
        max_sessions=num_sessions,
        max_tokens_per_step=100_000,
        grow_ahead=0,
        sink=sink,
    )
    rule = VerificationRule.REJECTION
    opens = (opening(i, PROMPT, sampling=SAMPLING, seed=i, rule=rule, budget=budget) for i in range(num_sessions))
    engine.handle(FrameIn(0, VOCAB, opens=tuple(opens)))
    while engine.step():
        pass
    return proposals


def emitted(seed: int, proposal: Proposal, budget: TreeBudget) -> tuple[int, ...]:
    request = GenerationRequest("r", PROMPT, SAMPLING, seed, VerificationRule.REJECTION, SpeculationMode.ON, budget)
    tree = proposal.tree
    paths = [PROMPT, *((*PROMPT, *(tree.token_ids[n] for n in tree.path(i))) for i in range(len(tree)))]
    logits = torch.stack([target_logits(path) for path in paths])
    return RejectionRule().verify(proposal, logits, RequestSampler(request, VOCAB, ())).token_ids


def expected_pairs() -> dict[tuple[int, int], float]:
    """Probability of the first two tokens under the target."""
    first = target_logits(PROMPT).softmax(0)
    return {
        (a, b): float(first[a] * target_logits((*PROMPT, a)).softmax(0)[b]) for a in range(VOCAB) for b in range(VOCAB)
    }


def assert_follows(counts: Counter[int], probs: dict[int, float]) -> None:
    expected = [counts.total() * p for p in probs.values()]
    assert p_value([counts[k] for k in probs], expected) > FAILURE_PROBABILITY, counts


@pytest.mark.parametrize(
    "budget", [TreeBudget(2, 3, 4), TreeBudget(3, 3, 5), TreeBudget(3, 1, 3)], ids=["wide", "cut", "chain"]
)
def test_emitted_tokens_follow_the_target(budget: TreeBudget) -> None:
    count = 500
    proposals = draft(count, budget)
    assert len(proposals) == count
    shapes = {proposal.tree.parent_indices for proposal in proposals.values()}
    assert len(shapes) > 1 or budget.max_width == 1, "the budget cuts nothing: the test would prove nothing"
    pairs = expected_pairs()
    firsts = Counter[int]()
    seconds: dict[int, Counter[int]] = {a: Counter() for a in range(VOCAB)}
    for seed, proposal in proposals.items():
        tokens = emitted(seed, proposal, budget)
        firsts[tokens[0]] += 1
        if len(tokens) > 1:
            seconds[tokens[0]][tokens[1]] += 1
    first_probs = {a: sum(pairs[a, b] for b in range(VOCAB)) for a in range(VOCAB)}
    assert_follows(firsts, first_probs)
    for a, counter in seconds.items():
        if sum(counter.values()) >= 60:  # given that the first was accepted, the second follows the target after it
            assert_follows(counter, {b: pairs[a, b] / first_probs[a] for b in range(VOCAB)})


def test_the_test_would_notice_a_cut_by_drawn_probability() -> None:
    """Dropping improbable draws, as a best-first tree under another rule may, shifts the output: the control."""
    budget = TreeBudget(1, 1, 1)
    firsts = Counter[int]()
    for seed, proposal in draft(500, budget).items():
        distribution = proposal.distributions[-1]
        prob = dict(zip(distribution.token_ids, distribution.probs, strict=True))[proposal.tree.token_ids[0]]
        kept = proposal if prob > np.median(distribution.probs) else proposal.prefix(TreeBudget(1, 1, 0))
        firsts[emitted(seed, kept, budget)[0]] += 1
    with pytest.raises(AssertionError, match="Counter"):
        assert_follows(firsts, {a: float(p) for a, p in enumerate(target_logits(PROMPT).softmax(0))})
