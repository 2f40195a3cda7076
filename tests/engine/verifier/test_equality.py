"""Speculation never changes a token: every script, rule and mixture against plain decoding of the same engine."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.fakes.engines import Collected, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.scripted_proposer import Script, ScriptedProposer, always, oracle, random_tree
from workers.core.config import NgramConfig
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.core.token_tree import TokenTree
from workers.models.loaded import LoadedModel
from workers.proposers.ngram import NgramProposer
from workers.proposers.none import NullProposer
from workers.proposers.union import UnionProposer

VOCAB = 512
PROMPTS = [[random.Random(i).randrange(3, VOCAB) for _ in range(5 + 9 * i)] for i in range(4)]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=16),
    "greedy with penalties": SamplingParams(
        temperature=0.0, max_tokens=16, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.3
    ),
    "sampled": SamplingParams(temperature=0.8, max_tokens=16),
    "sampled with everything": SamplingParams(
        temperature=1.2,
        top_k=50,
        top_p=0.9,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.2,
        logit_bias={7: 2.0, 9: -100.0},
        max_tokens=16,
        min_tokens=6,
        stop_token_ids=(11, 12, 13, 14, 15, 16, 17, 18),
    ),
}


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


Answers = dict[str, list[Collected]]


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> Iterator[Callable[[str], list[Collected]]]:
    """Plain answers of every prompt, one request at a time."""
    known: Answers = {}
    engine = make_engine(loaded)

    def answers(name: str) -> list[Collected]:
        if name not in known:
            known[name] = [run_all(engine, [request])[0] for request in requests_for(name, SpeculationMode.OFF)]
        return known[name]

    yield answers
    engine.stop()


def requests_for(name: str, mode: SpeculationMode = SpeculationMode.ON) -> list[GenerationRequest]:
    return [make_request(p, SAMPLINGS[name], seed=i + 1, mode=mode) for i, p in enumerate(PROMPTS)]


def scripts_for(answers: Sequence[Collected]) -> dict[str, Script]:
    known = {tuple(p): a.token_ids for p, a in zip(PROMPTS, answers, strict=True)}
    return {
        "oracle": oracle(known, VOCAB),
        "random": random_tree(VOCAB),
        "constant": always(5),
        "empty": lambda _, __: TokenTree.empty(),
        "chain": lambda committed, budget: TokenTree.chain(
            oracle(known, VOCAB)(committed, budget).token_ids[: budget.max_depth]
        ),
    }


EVERYTHING = "sampled with everything"
CASES = [(name, script) for name in SAMPLINGS for script in ("oracle", "random")]
CASES += [(EVERYTHING, script) for script in ("constant", "empty", "chain")]


@pytest.mark.parametrize(("name", "script"), CASES)
def test_every_token_equals_plain_decoding(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], name: str, script: str
) -> None:
    expected = plain(name)
    proposer = ScriptedProposer(scripts_for(expected)[script], silent_every=7)
    engine = make_engine(loaded, proposer)
    alone = run_all(engine, requests_for(name)[:1])
    together = run_all(engine, requests_for(name))
    engine.stop()
    assert [r.token_ids for r in alone + together] == [r.token_ids for r in [expected[0], *expected]]
    assert [r.finish_reason for r in together] == [r.finish_reason for r in expected]
    assert proposer.open_keys == set()
    if script == "oracle":
        stats = [r.stats for r in together if r.stats]
        emitted = sum(s.output_tokens for s in stats) / sum(s.verify_steps for s in stats)
        assert emitted > 1.8, "good proposals must be worth something, or this test proves nothing"


@pytest.mark.parametrize("rule", [VerificationRule.REJECTION, VerificationRule.TYPICAL])
def test_temperature_zero_is_argmax_under_rejection_too(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], rule: VerificationRule
) -> None:
    expected = plain("greedy")
    engine = make_engine(loaded, ScriptedProposer(scripts_for(expected)["oracle"]))
    requests = [make_request(p, SAMPLINGS["greedy"], seed=i + 1, rule=rule) for i, p in enumerate(PROMPTS)]
    results = run_all(engine, requests)
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in expected]
    assert all(r.stats is not None and r.stats.exact == rule.exact for r in results)


def test_an_answer_can_be_resumed_after_any_token(loaded: LoadedModel, plain: Callable[[str], list[Collected]]) -> None:
    name = "sampled with everything"
    expected = plain(name)[2].token_ids
    engine = make_engine(loaded, ScriptedProposer(random_tree(VOCAB)))
    for cut in range(0, len(expected), 5):
        request = make_request(PROMPTS[2], SAMPLINGS[name], seed=3, output_token_ids=expected[:cut])
        assert run_all(engine, [request])[0].token_ids == expected[cut:]
    engine.stop()


def test_little_memory_preempts_and_loses_nothing(loaded: LoadedModel, plain: Callable[[str], list[Collected]]) -> None:
    expected = plain("sampled")
    longest = max(len(p) for p in PROMPTS) + 16
    proposer = ScriptedProposer(scripts_for(expected)["oracle"])
    engine = make_engine(loaded, proposer, num_blocks=longest // 4 + 2, max_tokens_per_step=16)
    results = run_all(engine, requests_for("sampled") * 2)
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in expected] * 2
    assert sum(r.stats.preemptions for r in results if r.stats) > 0, "the pool was meant to be too small"


def test_prefix_hits_change_nothing(loaded: LoadedModel, plain: Callable[[str], list[Collected]]) -> None:
    expected = plain("sampled")[3]
    engine = make_engine(loaded, NullProposer())
    request = make_request(PROMPTS[3], SAMPLINGS["sampled"], seed=4)
    cold, warm = (run_all(engine, [request])[0] for _ in range(2))
    other = run_all(engine, [make_request(PROMPTS[3], SAMPLINGS["sampled"], seed=4, cache_salt="tenant")])[0]
    engine.stop()
    assert cold.token_ids == warm.token_ids == other.token_ids == expected.token_ids
    cached = tuple(r.stats.cached_prompt_tokens for r in (cold, warm, other) if r.stats)
    assert cached == (0, (len(PROMPTS[3]) - 1) // 4 * 4, 0)


@pytest.mark.parametrize("name", ["greedy", "sampled with everything"])
@pytest.mark.parametrize("rule", [VerificationRule.COUPLED, VerificationRule.REJECTION])
def test_prompt_lookup(loaded: LoadedModel, name: str, rule: VerificationRule) -> None:
    """Prompts that hold their own answer, so that lookup finds something; rejection is compared where it is argmax."""
    if rule is VerificationRule.REJECTION and not SAMPLINGS[name].greedy:
        name = "greedy with penalties"
    plain_engine = make_engine(loaded)
    first = run_all(plain_engine, [make_request(PROMPTS[1], SAMPLINGS[name], seed=2, mode=SpeculationMode.OFF)])[0]
    prompt = [*PROMPTS[1], *first.token_ids, *PROMPTS[1]]
    requests = [make_request(prompt, SAMPLINGS[name], seed=s, rule=rule) for s in (2, 3)]
    off = [make_request(prompt, SAMPLINGS[name], seed=s, mode=SpeculationMode.OFF) for s in (2, 3)]
    expected = [r.token_ids for r in run_all(plain_engine, off)]
    plain_engine.stop()
    engine = make_engine(loaded, NgramProposer(NgramConfig(prompt_lookup_min=1, prompt_lookup_max=3)))
    results = run_all(engine, requests)
    engine.stop()
    assert [r.token_ids for r in results] == expected
    assert sum(r.stats.drafted_tokens for r in results if r.stats) > 10


@pytest.mark.parametrize("name", ["greedy", "sampled", "sampled with everything"])
@pytest.mark.parametrize("script", ["oracle", "random", "constant"])
def test_a_union_with_prompt_lookup(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], name: str, script: str
) -> None:
    expected = plain(name)
    lookup = NgramProposer(NgramConfig(prompt_lookup_min=1, prompt_lookup_max=3))
    engine = make_engine(loaded, UnionProposer(ScriptedProposer(scripts_for(expected)[script], silent_every=3), lookup))
    results = run_all(engine, requests_for(name))
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in expected]
