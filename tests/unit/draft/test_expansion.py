"""Children of a node: the drafter's quick ways agree with the slow ones of workers.sampling."""

import math

import pytest
import torch

from tests.unit.draft.rig import opening
from workers.core.errors import InvalidRequestError
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.drafting.expansion import Expander
from workers.drafting.shortlist import RowBuffer, shortlists
from workers.drafting.tree import Candidate, GrowingTree
from workers.sampling.filters import top_tokens
from workers.sampling.logits import LogitsProcessor
from workers.sampling.noise import gumbel_noise

SIZE = 5000


def rows(count: int, size: int = SIZE, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed)) * 3


def expander(sampling: SamplingParams, rule: VerificationRule = VerificationRule.COUPLED, size: int = SIZE) -> Expander:
    message = opening(tokens=(1, 2, 3, 4), prompt_tokens=3, sampling=sampling, rule=rule, seed=5)
    return Expander(message, vocab_size=size, eos_token_ids=(9, 99_999), buffer=RowBuffer())


@pytest.mark.parametrize("size", [10, 4096, 5000, 49_152, 128 * 40 + 1])
@pytest.mark.parametrize("count", [1, 8, 64])
def test_shortlists_are_the_best_tokens(size: int, count: int) -> None:
    scores = rows(3, size)
    values, tokens = shortlists(scores, count)
    expected = scores.topk(min(count, size))
    assert torch.equal(values, expected.values)
    assert torch.equal(tokens, expected.indices)


def test_the_row_buffer_grows_and_is_reused() -> None:
    buffer = RowBuffer()
    small = buffer.rows(2, 10)
    assert tuple(small.shape) == (2, 10)
    assert tuple(buffer.rows(4, 10).shape) == (4, 10)
    assert buffer.rows(1, 3).data_ptr() == buffer.rows(4, 10).data_ptr()


PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=20),
    SamplingParams(temperature=0.8, top_p=0.6),
    SamplingParams(temperature=0.8, min_p=0.2, top_k=50),
    SamplingParams(temperature=0.9, frequency_penalty=1.5, repetition_penalty=1.3),
    SamplingParams(temperature=0.9, logit_bias={17: 20.0}, top_p=0.9),
    SamplingParams(temperature=1e-5),
]


@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
def test_coupled_children_are_the_best_noisy_tokens(params: SamplingParams) -> None:
    logits = rows(2)
    tree = GrowingTree(4, 3)
    tree.expand(tree.root, [Candidate(40, -0.5)])
    drawn = expander(params).children(logits, [tree.root, tree.root.children[0]], 3)
    processor = LogitsProcessor(params, vocab_size=SIZE, prompt_token_ids=(1, 2, 3), eos_token_ids=(9,))
    for raw, path, (candidates, distribution) in zip(logits, ((), (40,)), drawn, strict=True):
        scores = processor.process(raw, (4, *path))
        if not params.greedy:
            scores = scores + gumbel_noise(5, 4 + len(path), SIZE)
        expected = top_tokens(scores, 3).tolist()
        assert [c.token for c in candidates] == expected
        survival = [math.exp(c.log_survival) for c in candidates]
        assert survival == sorted(survival, reverse=True)
        assert 0.0 < sum(survival) <= 1.0 + 1e-6
        assert distribution is None


def test_end_tokens_are_marked() -> None:
    logits = torch.zeros(1, SIZE)
    logits[0, [9, 30, 31]] = torch.tensor([9.0, 8.0, 7.0])
    tree = GrowingTree(4, 3)

    def marks(**params: object) -> list[bool]:
        sampling = SamplingParams(temperature=0.0, **params)  # type: ignore[arg-type]
        [(candidates, _)] = expander(sampling).children(logits, [tree.root], 3)
        return [c.terminal for c in candidates]

    assert marks() == [True, False, False]
    assert marks(ignore_eos=True) == [False, False, False]
    assert marks(stop_token_ids=(31,)) == [True, False, True]
    assert marks(min_tokens=3) == [False, False, False]  # the end cannot be sampled yet


def test_rejection_children_come_from_the_distribution_that_is_sent() -> None:
    params = SamplingParams(temperature=0.8, top_k=5)
    logits = rows(1)
    tree = GrowingTree(4, 3)
    [(candidates, distribution)] = expander(params, VerificationRule.REJECTION).children(logits, [tree.root], 4)
    assert distribution is not None
    distribution.check(SIZE)
    assert len(distribution.token_ids) == 5
    assert len({c.token for c in candidates} & set(distribution.token_ids)) == 4
    processor = LogitsProcessor(params, vocab_size=SIZE, prompt_token_ids=(1, 2, 3), eos_token_ids=(9,))
    exact = processor.process(logits[0], (4,)).exp()
    for token, prob in zip(distribution.token_ids, distribution.probs, strict=True):
        assert prob == pytest.approx(float(exact[token]), rel=1e-4)


def test_rejection_ranks_do_not_depend_on_the_drawn_token() -> None:
    logits = rows(1)
    seen: dict[float, set[int]] = {}
    for order in range(40):
        tree = GrowingTree(4, 3)
        tree.root.order = order  # another stream of draws
        [(candidates, _)] = expander(SamplingParams(), VerificationRule.REJECTION).children(logits, [tree.root], 1)
        seen.setdefault(candidates[0].log_survival, set()).add(candidates[0].token)
    assert len(seen) == 1, "the survival of the first draw depends on what was drawn"
    assert len(next(iter(seen.values()))) > 3


def test_fewer_possible_tokens_than_wanted() -> None:
    params = SamplingParams(temperature=0.8, top_k=2)
    tree = GrowingTree(4, 3)
    for rule in (VerificationRule.COUPLED, VerificationRule.REJECTION):
        [(candidates, _)] = expander(params, rule).children(rows(1), [tree.root], 4)
        assert len(candidates) == 2


def test_a_wider_logits_row_is_cut_to_the_smaller_vocabulary() -> None:
    tree = GrowingTree(4, 3)
    logits = torch.arange(20.0)[None]
    [(candidates, _)] = expander(SamplingParams(temperature=0.0), size=12).children(logits, [tree.root], 3)
    assert [c.token for c in candidates] == [11, 10, 9]


def test_parameters_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="logit_bias"):
        expander(SamplingParams(logit_bias={SIZE: 1.0}))


def test_noise_is_prepared_up_to_the_wanted_position_and_no_further() -> None:
    ready = expander(SamplingParams())
    assert [ready.prepare(4, 6) for _ in range(4)] == [True, True, True, False]
    assert ready.prepare(20, 20)  # far behind: starts at the present
    assert not ready.prepare(20, 20)
    assert not expander(SamplingParams(temperature=0.0)).prepare(4, 9)
    assert not expander(SamplingParams(), VerificationRule.REJECTION).prepare(4, 9)


@pytest.mark.parametrize("rule", [VerificationRule.COUPLED, VerificationRule.REJECTION])
@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
@pytest.mark.parametrize("vocab_size", [SIZE, SIZE - 1000], ids=["the draft's own", "a smaller target's"])
def test_a_reduced_vocabulary_is_one_without_the_other_tokens(
    vocab_size: int, params: SamplingParams, rule: VerificationRule
) -> None:
    token_map = torch.arange(3, SIZE, 7)
    raw = rows(2)
    whole = torch.full_like(raw, -math.inf)
    whole[:, token_map] = raw[:, token_map]
    message = opening(tokens=(1, 2, 3, 4), prompt_tokens=3, sampling=params, rule=rule, seed=5)
    reduced = Expander(message, vocab_size=vocab_size, eos_token_ids=(9,), buffer=RowBuffer(), token_map=token_map)
    tree = GrowingTree(4, 3)
    tree.expand(tree.root, [Candidate(17, -0.1), Candidate(24, -0.2)])
    nodes = tree.frontier(2)
    full = Expander(message, vocab_size=vocab_size, eos_token_ids=(9,), buffer=RowBuffer())
    for (got, got_from), (expected, expected_from) in zip(
        reduced.children(raw[:, token_map], nodes, 3), full.children(whole, nodes, 3), strict=True
    ):
        assert [c.token for c in got] == [c.token for c in expected]
        assert [c.log_survival for c in got] == pytest.approx([c.log_survival for c in expected], abs=1e-4)
        assert (got_from is None) == (expected_from is None)
        if got_from is not None and expected_from is not None:
            assert got_from.token_ids == expected_from.token_ids
            assert got_from.probs == pytest.approx(expected_from.probs, rel=1e-4)
