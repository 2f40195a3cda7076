"""The engine under the budget controller: pausing and resuming change no token, and a useless drafter is left alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.replay_budget import read_trace, replay
from tests.fakes.engines import Collected, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.scripted_proposer import Script, ScriptedProposer, always, oracle, random_tree
from workers.core.config import SpeculationConfig
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.core.token_tree import TokenTree
from workers.models.loaded import LoadedModel
from workers.proposers.base import CommitUpdate, DraftSession, Want

VOCAB = 512
PROMPTS = [[7 * i + j for j in range(5 + 6 * i)] for i in range(4)]
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, repetition_penalty=1.1, max_tokens=40, ignore_eos=True)
RESTLESS = SpeculationConfig(profile_ms=0.0, patience_steps=1, probe_every_steps=3, control_every_steps=5)


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> Iterator[list[Collected]]:
    engine = make_engine(loaded)
    yield run_all(engine, requests(SpeculationMode.OFF))
    engine.stop()


def requests(mode: SpeculationMode, rule: VerificationRule = VerificationRule.COUPLED) -> list[GenerationRequest]:
    return [make_request(p, SAMPLED, seed=i, mode=mode, rule=rule) for i, p in enumerate(PROMPTS)]


class Watched(ScriptedProposer):
    """Counts what the engine asks and tells; paused requests must not be asked."""

    def __init__(self, script: Script, silent_every: int = 0, hints: bool = False) -> None:
        super().__init__(script, silent_every=silent_every)
        self.opened = self.asked = self.pauses = 0
        self.paused: set[int] = set()
        self.largest = 0
        self._hints = hints

    def open(self, session: DraftSession) -> None:
        self.opened += 1
        super().open(session)

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        assert not self.paused & set(wants)
        self.asked += len(wants)
        self.largest = max([self.largest, *(want.budget.max_nodes for want in wants.values())])
        proposals = super().collect(wants)
        if not self._hints:
            return proposals
        return {  # nonsense of all kinds: positive, rising along paths, of the wrong length
            key: Proposal(p.base_len, p.tree, log_survival=tuple(0.3 * n - 1.0 for n in range(len(p.tree) - key % 2)))
            for key, p in proposals.items()
        }

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            self.pauses += update.paused and update.key not in self.paused
            (self.paused.add if update.paused else self.paused.discard)(update.key)
        super().commit(updates)


def scripts(plain: Sequence[Collected]) -> dict[str, Script]:
    known = {tuple(p): a.token_ids for p, a in zip(PROMPTS, plain, strict=True)}
    return {"oracle": oracle(known, VOCAB), "random": random_tree(VOCAB), "constant": always(5)}


@pytest.mark.parametrize("hints", [False, True])
@pytest.mark.parametrize("script", ["oracle", "random", "constant"])
def test_auto_equals_plain_decoding_however_often_it_pauses(
    loaded: LoadedModel, plain: list[Collected], script: str, hints: bool
) -> None:
    proposer = Watched(scripts(plain)[script], silent_every=5, hints=hints)
    engine = make_engine(loaded, proposer, speculation=RESTLESS)
    results = run_all(engine, [*requests(SpeculationMode.AUTO), *requests(SpeculationMode.OFF)])
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain] * 2
    assert proposer.open_keys == set()
    assert proposer.pauses > 0, "the controller never paused: the test would prove nothing"


def test_modes_can_be_mixed(loaded: LoadedModel, plain: list[Collected]) -> None:
    proposer = Watched(scripts(plain)["oracle"])
    engine = make_engine(loaded, proposer, speculation=RESTLESS)
    results = run_all(engine, requests(SpeculationMode.AUTO) + requests(SpeculationMode.ON))
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain] * 2


class WorkClock:
    """A machine without noise: a forward takes 5 ms, and 1 ms for each row."""

    def __init__(self) -> None:
        self._now = 1.0

    def __call__(self) -> float:
        return self._now

    def count(self, _: torch.nn.Module, __: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        self._now += (5 + inputs["position_ids"].shape[1]) / 1e3


@pytest.fixture
def clock(loaded: LoadedModel) -> Iterator[WorkClock]:
    clock = WorkClock()
    handle = loaded.model.register_forward_pre_hook(clock.count, with_kwargs=True)
    yield clock
    handle.remove()


def test_a_useless_drafter_is_paused_and_later_requests_do_not_even_open(loaded: LoadedModel, clock: WorkClock) -> None:
    settings = SpeculationConfig(profile_ms=0.0, probe_every_steps=0)
    proposer = Watched(always(5))
    engine = make_engine(loaded, proposer, speculation=settings, clock=clock)
    long = SamplingParams(temperature=1.0, max_tokens=200, ignore_eos=True)
    [result] = run_all(engine, [make_request(PROMPTS[0], long, seed=1, mode=SpeculationMode.AUTO)])
    asked = proposer.asked
    assert asked < 120
    assert proposer.pauses >= 1
    assert result.stats is not None
    assert result.stats.plain_steps > 80
    run_all(engine, [make_request(p, long, seed=2, mode=SpeculationMode.AUTO) for p in PROMPTS])
    engine.stop()
    assert (proposer.opened, proposer.asked) == (1, asked), "zero costs nothing: no session, no question"


def test_speculation_on_is_never_paused_nor_cut(loaded: LoadedModel) -> None:
    proposer = Watched(always(5))
    engine = make_engine(loaded, proposer, speculation=RESTLESS)
    limits = TreeBudget(3, 2, 3)
    [result] = run_all(engine, [make_request(PROMPTS[0], SAMPLED, seed=1, mode=SpeculationMode.ON, limits=limits)])
    engine.stop()
    assert proposer.pauses == 0
    assert result.stats is not None
    assert result.stats.drafted_tokens >= 3 * (proposer.asked - 3)


def test_limits_of_the_client_bound_auto(loaded: LoadedModel, plain: list[Collected]) -> None:
    proposer = Watched(scripts(plain)["oracle"])
    engine = make_engine(loaded, proposer)
    limits = TreeBudget(2, 2, 4)
    run_all(engine, [make_request(PROMPTS[1], SAMPLED, seed=1, mode=SpeculationMode.AUTO, limits=limits)])
    engine.stop()
    assert 0 < proposer.largest <= 4


def test_the_trace_replays_to_the_same_decisions(loaded: LoadedModel, plain: list[Collected], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "trace-{pid}.jsonl"
    settings = SpeculationConfig(profile_ms=0.0, trace_path=str(path))
    engine = make_engine(loaded, ScriptedProposer(scripts(plain)["oracle"]), speculation=settings)
    run_all(engine, requests(SpeculationMode.AUTO))
    engine.stop()
    [written] = path.parent.iterdir()
    records = read_trace(written)
    assert len(records) == len(written.read_text().splitlines()) > 10
    replayed = replay(records)
    assert sum(step.nodes for step in replayed) > 0
    assert all(step.same for step in replayed)
    record = json.loads(written.read_text().splitlines()[-1])
    assert {"ms", "wait_ms", "emitted", "advantage", "active"} <= set(record)


def test_the_profile_is_short_and_leaves_the_cache_alone(loaded: LoadedModel, plain: list[Collected]) -> None:
    engine = make_engine(loaded, ScriptedProposer(lambda *_: TokenTree.empty()), speculation=SpeculationConfig())
    results = run_all(engine, requests(SpeculationMode.AUTO))
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain]
    engine._kv_cache.check_invariants()
