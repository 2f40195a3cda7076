"""Medusa heads, good or hostile, never change a token."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.verifier.test_equality import PROMPTS, SAMPLINGS
from tests.fakes.engines import Collected, Collector, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.medusa_heads import heads_config, knowing_heads, proposer_of, random_heads
from workers.core.config import NgramConfig
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.models.loaded import LoadedModel
from workers.proposers.medusa import MedusaProposer
from workers.proposers.ngram import NgramProposer
from workers.proposers.union import UnionProposer

HEADS = ["knowing", "knowing, shared, reduced", "random", "random, shared, reduced", "random, two layers"]
WITH_LOOKUP = ", with prompt lookup"

Load = Callable[[str, str], MedusaProposer]


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> Iterator[Callable[[str], list[Collected]]]:
    known: dict[str, list[Collected]] = {}
    engine = make_engine(loaded)

    def answers(name: str) -> list[Collected]:
        if name not in known:
            known[name] = run_all(engine, requests_for(name, mode=SpeculationMode.OFF))
        return known[name]

    yield answers
    engine.stop()


@pytest.fixture(scope="module")
def load(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Load:
    def load_one(kind: str, sampling: str) -> MedusaProposer:
        heads = {
            "knowing": lambda: knowing_heads(loaded, PROMPTS, SAMPLINGS[sampling]),
            "knowing, shared, reduced": lambda: knowing_heads(
                loaded, PROMPTS, SAMPLINGS[sampling], heads_config(loaded, shared=True, reduced=200, layers=2)
            ),
            "random": lambda: random_heads(heads_config(loaded), loaded),
            "random, shared, reduced": lambda: random_heads(heads_config(loaded, shared=True, reduced=100), loaded),
            "random, two layers": lambda: random_heads(heads_config(loaded, layers=2), loaded),
        }[kind]()
        return proposer_of(tmp_path_factory.mktemp("heads"), heads, loaded)

    return load_one


def requests_for(
    name: str, rule: VerificationRule = VerificationRule.COUPLED, mode: SpeculationMode = SpeculationMode.ON
) -> list[GenerationRequest]:
    return [make_request(p, SAMPLINGS[name], seed=i + 1, rule=rule, mode=mode) for i, p in enumerate(PROMPTS)]


@pytest.mark.parametrize("kind", [*HEADS, "knowing" + WITH_LOOKUP, "random" + WITH_LOOKUP])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_token_equals_plain_decoding(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], load: Load, name: str, kind: str
) -> None:
    expected = plain(name)
    heads = load(kind.removesuffix(WITH_LOOKUP), name)
    united = UnionProposer(heads, NgramProposer(NgramConfig())) if kind.endswith(WITH_LOOKUP) else heads
    engine = make_engine(loaded, united)
    alone = run_all(engine, requests_for(name)[:1])
    together = run_all(engine, requests_for(name))
    engine.stop()
    assert [r.token_ids for r in alone + together] == [r.token_ids for r in [expected[0], *expected]]
    assert [r.finish_reason for r in together] == [r.finish_reason for r in expected]
    stats = [r.stats for r in together if r.stats]
    assert sum(s.drafted_tokens for s in stats) > 0
    if kind.startswith("knowing"):
        emitted = sum(s.output_tokens for s in stats) / sum(s.verify_steps for s in stats)
        assert emitted > 1.4, "good proposals must be worth something, or this test proves nothing"


@pytest.mark.parametrize("kind", HEADS[:4])
@pytest.mark.parametrize("name", ["greedy", "greedy with penalties"])
def test_temperature_zero_is_argmax_under_rejection_too(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], load: Load, name: str, kind: str
) -> None:
    engine = make_engine(loaded, load(kind, name))
    results = run_all(engine, requests_for(name, VerificationRule.REJECTION))
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain(name)]


def test_an_answer_can_be_resumed_after_any_token(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], load: Load
) -> None:
    name = "sampled with everything"
    expected = plain(name)[2].token_ids
    engine = make_engine(loaded, load("knowing", name))
    for cut in range(0, len(expected), 5):
        request = make_request(PROMPTS[2], SAMPLINGS[name], seed=3, output_token_ids=expected[:cut])
        assert run_all(engine, [request])[0].token_ids == expected[cut:]
    engine.stop()


def test_preemption_and_prefill_in_chunks_lose_nothing(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], load: Load
) -> None:
    longest = max(len(p) for p in PROMPTS) + 16
    engine = make_engine(loaded, load("knowing", "sampled"), num_blocks=longest // 4 + 2, max_tokens_per_step=16)
    results = run_all(engine, requests_for("sampled") * 2)
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain("sampled")] * 2
    assert sum(r.stats.preemptions for r in results if r.stats) > 0, "the pool was meant to be too small"


def test_cancelled_requests_leave_nothing_behind(
    loaded: LoadedModel, plain: Callable[[str], list[Collected]], load: Load
) -> None:
    proposer = load("knowing", "greedy")
    engine = make_engine(loaded, proposer)
    collector = Collector()
    long = make_request(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True), seed=1)
    key = engine.submit(long, collector)
    assert collector.first.wait(30)
    engine.cancel(key)
    collector.wait()
    assert [r.token_ids for r in run_all(engine, requests_for("greedy"))] == [r.token_ids for r in plain("greedy")]
    engine.stop()
    assert proposer.num_sessions == 0
