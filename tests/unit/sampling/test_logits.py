"""`LogitsProcessor` against a reference in plain Python, and its edge cases."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from workers.core.errors import ConfigurationError, InvalidRequestError
from workers.core.sampling_params import SamplingParams
from workers.sampling.filters import best_token, top_tokens
from workers.sampling.logits import LogitsProcessor, token_logprobs

VOCAB, EOS = 40, 39
PROMPT = (1, 2, 3, 2)


def processor(vocab_size: int = VOCAB, **params: Any) -> LogitsProcessor:
    return LogitsProcessor(
        SamplingParams(**params),
        vocab_size=vocab_size,
        prompt_token_ids=PROMPT,
        eos_token_ids=(vocab_size - 1,),
    )


def adjusted(params: SamplingParams, logits: Sequence[float], output: Sequence[int]) -> list[float]:
    """Bias, min_tokens and penalties, one token at a time."""
    values = []
    for token, logit in enumerate(logits):
        value = logit + params.logit_bias.get(token, 0.0)
        if len(output) < params.min_tokens and (token == EOS or token in params.stop_token_ids):
            value = -math.inf
        if token in PROMPT or token in output:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        count = output.count(token)
        value -= params.frequency_penalty * count
        value -= params.presence_penalty * (count > 0)
        values.append(value)
    return values


def reference(params: SamplingParams, logits: Sequence[float], output: Sequence[int]) -> list[float]:
    """Probabilities, by sorting everything at every filter."""
    values = adjusted(params, logits, output)
    weights = [math.exp((v - max(values)) / params.temperature) for v in values]
    probs = [w / sum(weights) for w in weights]
    probs = [p if p >= params.min_p * max(probs) else 0.0 for p in probs]
    order = sorted(range(VOCAB), key=lambda t: (-probs[t], t))
    keep = set(order[: params.top_k or VOCAB])
    probs = [p if t in keep else 0.0 for t, p in enumerate(probs)]
    total, mass, keep = sum(probs), 0.0, set()
    for token in order:
        keep.add(token)
        mass += probs[token]
        if mass >= params.top_p * total:
            break
    probs = [p if t in keep or params.top_p == 1.0 else 0.0 for t, p in enumerate(probs)]
    return [p / sum(probs) for p in probs]


def random_params(rng: random.Random) -> SamplingParams:
    def maybe(value: float, off: float) -> float:
        return value if rng.random() < 0.5 else off

    return SamplingParams(
        temperature=maybe(rng.uniform(0.2, 2.0), 1.0),
        top_k=int(maybe(rng.randint(1, VOCAB + 5), 0)),
        top_p=maybe(rng.uniform(0.05, 1.0), 1.0),
        min_p=maybe(rng.uniform(0.0, 0.3), 0.0),
        repetition_penalty=maybe(rng.uniform(0.5, 2.0), 1.0),
        presence_penalty=maybe(rng.uniform(-2, 2), 0.0),
        frequency_penalty=maybe(rng.uniform(-2, 2), 0.0),
        logit_bias={rng.randrange(VOCAB): rng.uniform(-5, 5) for _ in range(rng.randint(0, 3))},
        stop_token_ids=(7,),
        min_tokens=rng.choice([0, 0, 4]),
    )


@pytest.mark.parametrize("seed", range(50))
def test_equals_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    params = random_params(rng)
    logits = [rng.gauss(0, 2) for _ in range(VOCAB)]
    output = [rng.randrange(VOCAB) for _ in range(rng.randint(0, 8))]
    subject = LogitsProcessor(params, vocab_size=VOCAB, prompt_token_ids=PROMPT, eos_token_ids=(EOS,))
    raw = torch.tensor(logits)
    log_probs = subject.process(raw, output)
    assert torch.equal(raw, torch.tensor(logits)), "the input was changed"
    expected = torch.tensor(reference(params, logits, output))
    assert torch.equal(log_probs > -math.inf, expected > 0)
    torch.testing.assert_close(log_probs.exp(), expected, rtol=1e-4, atol=1e-7)

    split = rng.randint(0, len(output))
    subject.commit(output[:split])
    assert torch.equal(subject.process(raw, output), log_probs), "commit must not change a bit"
    assert torch.equal(subject.process_path(raw, output[split:]), log_probs)


@pytest.mark.parametrize("seed", range(10))
def test_temperature_0_applies_what_moves_the_argmax_only(seed: int) -> None:
    rng = random.Random(seed)
    params = random_params(rng).model_copy(update={"temperature": 0.0})
    logits = [rng.gauss(0, 2) for _ in range(VOCAB)]
    output = [rng.randrange(VOCAB) for _ in range(5)]
    subject = LogitsProcessor(params, vocab_size=VOCAB, prompt_token_ids=PROMPT, eos_token_ids=(EOS,))
    expected = adjusted(params, logits, output)
    assert best_token(subject.process(torch.tensor(logits), output)) == expected.index(max(expected))


def test_greedy_without_anything_else_returns_the_logits_themselves() -> None:
    raw = torch.randn(VOCAB)
    assert processor(temperature=0.0, top_k=3).process(raw, ()) is raw


def test_ties_go_to_the_lower_token() -> None:
    raw = torch.zeros(VOCAB)
    raw[[5, 9, 20]] = 1.0
    assert kept(processor(top_k=2), raw) == [5, 9]
    assert kept(processor(top_k=4), raw) == [0, 5, 9, 20]
    assert kept(processor(top_p=1e-6), raw) == [5]
    assert best_token(raw) == 5
    assert top_tokens(raw, 5).tolist() == [5, 9, 20, 0, 1]


def kept(subject: LogitsProcessor, logits: torch.Tensor) -> list[int]:
    return (subject.process(logits, ()) > -math.inf).nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("params", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}])
def test_one_token_is_always_kept(params: dict[str, Any]) -> None:
    log_probs = processor(**params).process(torch.arange(VOCAB, dtype=torch.float32), ())
    assert log_probs[VOCAB - 1] == 0.0
    assert bool((log_probs[:-1] == -math.inf).all())


def test_top_p_over_more_tokens_than_are_sorted_at_first() -> None:
    size = 5000
    log_probs = processor(size, top_p=0.5).process(torch.zeros(size), ())
    assert kept(processor(size, top_p=0.5), torch.zeros(size)) == list(range(2500))
    torch.testing.assert_close(log_probs[:2500], torch.full((2500,), -math.log(2500)))
    assert len(kept(processor(size, min_p=0.5), torch.zeros(size))) == size


def test_top_tokens_skips_impossible_ones() -> None:
    values = torch.tensor([-math.inf, 1.0, -math.inf, 2.0])
    assert top_tokens(values, 1).tolist() == [3]
    assert top_tokens(values, 3).tolist() == [3, 1]
    assert top_tokens(values, 9).tolist() == [3, 1]


def test_bias_on_every_token_changes_nothing() -> None:
    raw = torch.randn(VOCAB)
    everywhere = processor(logit_bias=dict.fromkeys(range(VOCAB), -100.0)).process(raw, ())
    torch.testing.assert_close(everywhere, processor().process(raw, ()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-6, 1e-3])
def test_tiny_temperatures_are_greedy_not_nan(temperature: float) -> None:
    raw = torch.linspace(-30, 30, VOCAB)
    log_probs = processor(temperature=temperature, top_p=0.9).process(raw, ())
    assert best_token(log_probs) == VOCAB - 1
    assert not bool(log_probs.isnan().any())


def test_min_tokens_that_leave_nothing() -> None:
    with pytest.raises(InvalidRequestError, match="min_tokens: all 4 tokens"):
        processor(4, min_tokens=1, stop_token_ids=(0, 1, 2))


@pytest.mark.parametrize("field", [{"logit_bias": {40: 1.0}}, {"stop_token_ids": (40,)}])
def test_tokens_outside_the_vocabulary(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="token id 40 is outside the vocabulary"):
        processor(**field)


def test_prompt_and_end_tokens_outside_the_vocabulary() -> None:
    with pytest.raises(InvalidRequestError, match=r"prompt token 3 is outside the vocabulary \(0 to 2\)"):
        processor(3, presence_penalty=1.0)
    with pytest.raises(ConfigurationError, match=r"\[9\] must be below the vocabulary size 9"):
        LogitsProcessor(SamplingParams(), vocab_size=9, prompt_token_ids=(), eos_token_ids=(9,))


def test_wrong_shape_and_forgotten_output() -> None:
    with pytest.raises(ValueError, match=r"logits have shape \(7,\), expected \(40,\)"):
        processor().process(torch.zeros(7), ())
    subject = processor()
    subject.commit((1, 2))
    with pytest.raises(ValueError, match="1 output tokens, but 2 are committed"):
        subject.process(torch.zeros(VOCAB), (1,))


def test_token_logprobs() -> None:
    raw = torch.log(torch.tensor([0.1, 0.4, 0.1, 0.4])) + 3.0
    answer = token_logprobs(raw, 0, 3)
    assert answer.token_id == 0
    assert answer.logprob == pytest.approx(math.log(0.1))
    assert [token for token, _ in answer.top] == [1, 3, 0]
    assert [math.exp(value) for _, value in answer.top] == pytest.approx([0.4, 0.4, 0.1])
    assert token_logprobs(raw, 2, 0).top == ()
