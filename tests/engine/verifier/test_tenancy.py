"""Priorities, tenants and deadlines in a whole engine: who is served when, and that nothing changes a token.

Most engines here are stepped by hand under a clock of the test's own.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from outrider.testing import FakeClock

from tests.fakes.engines import Collected, Collector, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.scripted_proposer import ScriptedProposer, random_tree
from workers.core.errors import OverloadedError
from workers.core.request import FinishReason, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode
from workers.models.loaded import LoadedModel
from workers.verifier.engine import VerifierEngine
from workers.verifier.request_state import ScheduledRequest
from workers.verifier.step import StepResult

PROMPT = list(range(20, 50))
SHORT = SamplingParams(temperature=0.8, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def by_hand(loaded: LoadedModel, clock: FakeClock) -> Callable[..., VerifierEngine]:
    """An engine for one request at a time, whose steps take a second each."""

    def make(**settings: Any) -> VerifierEngine:
        engine = make_engine(loaded, clock=clock, started=False, **({"max_running_requests": 1} | settings))
        run = engine._step.run

        def slow(scheduled: Sequence[ScheduledRequest]) -> list[StepResult]:
            clock.sleep(1.0)
            return run(scheduled)

        engine._step.run = slow  # type: ignore[method-assign]
        return engine

    return make


def steps(engine: VerifierEngine, count: int = 200) -> None:
    """Run until nothing is left, or `count` steps."""
    for _ in range(count):
        if engine.is_idle:
            return
        engine.run_step()


class Ends(Collector):
    """Notes in which order requests end."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self._name, self._order = name, order

    def push(self, output: Any) -> None:
        super().push(output)
        if output.finish_reason is not None:
            self._order.append(self._name)


def submit(engine: VerifierEngine, order: list[str], name: str, **request: Any) -> Ends:
    sink = Ends(name, order)
    sampling = request.pop("sampling", SHORT)
    engine.submit(make_request(PROMPT, sampling, mode=SpeculationMode.OFF, **request), sink)
    return sink


def test_urgent_requests_overtake_those_that_wait(by_hand: Callable[..., VerifierEngine]) -> None:
    engine, order = by_hand(), list[str]()
    submit(engine, order, "running")
    engine.run_step()
    for name, priority in (("usual", 0), ("late", 7), ("urgent", -7), ("usual too", 0)):
        submit(engine, order, name, priority=priority)
    steps(engine)
    assert order == ["running", "urgent", "usual", "usual too", "late"]


def test_a_flood_of_one_tenant_does_not_delay_another(by_hand: Callable[..., VerifierEngine]) -> None:
    engine, order = by_hand(), list[str]()
    for i in range(6):
        submit(engine, order, f"flood {i}", tenant="flood", seed=i)
    engine.run_step()
    submit(engine, order, "other", tenant="other")
    steps(engine)
    assert order.index("other") == 1, "behind the one that ran already"


def test_a_full_queue_gives_way_to_an_urgent_request_and_tells_the_other(
    by_hand: Callable[..., VerifierEngine],
) -> None:
    engine, order = by_hand(max_waiting_requests=2), list[str]()
    submit(engine, order, "first")
    steps(engine)
    submit(engine, order, "running")
    engine.run_step()
    waits, goes = submit(engine, order, "waits"), submit(engine, order, "goes", seed=1)
    with pytest.raises(OverloadedError, match=r"queue of this verifier is full \(2 requests\)") as refused:
        submit(engine, order, "refused")
    urgent = submit(engine, order, "urgent", priority=-1)
    assert isinstance(goes.wait().error, OverloadedError)
    for error in (refused.value, goes.result.error):
        assert isinstance(error, OverloadedError)
        assert error.retry_after_s is not None
    assert goes.result.token_ids == []
    steps(engine)
    assert order == ["first", "running", "urgent", "waits"]
    assert [len(one.wait().token_ids) for one in (waits, urgent)] == [4, 4]
    engine._kv_cache.check_invariants()
    assert engine.num_free_blocks == engine._kv_cache.num_blocks


def test_a_deadline_also_ends_a_request_that_waits(by_hand: Callable[..., VerifierEngine]) -> None:
    engine, order = by_hand(), list[str]()
    long = SamplingParams(max_tokens=30, ignore_eos=True)
    submit(engine, order, "running", sampling=long)
    engine.run_step()
    sinks = [submit(engine, order, f"waiting {i}", deadline_ms=5000 + i, sampling=long) for i in range(10)]
    steps(engine, 8)
    for sink in sinks:
        result = sink.wait()
        assert (result.finish_reason, result.token_ids) == (FinishReason.DEADLINE, [])
        assert result.stats is not None
        assert 5000 <= result.stats.total_ms <= 7000
    assert engine.num_waiting == 0
    assert engine.num_running == 1


def test_what_waited_too_long_to_end_in_time_takes_no_step(by_hand: Callable[..., VerifierEngine]) -> None:
    engine, order = by_hand(), list[str]()
    submit(engine, order, "teaches the pace")  # 4 s for 4 tokens
    steps(engine)
    submit(engine, order, "running")
    engine.run_step()
    in_time = submit(engine, order, "in time", deadline_ms=20_000)
    hopeless = submit(engine, order, "hopeless", deadline_ms=6000, tenant="")
    never = submit(engine, order, "never could", deadline_ms=1500)
    steps(engine)
    error = hopeless.wait().error
    assert isinstance(error, OverloadedError)
    assert "waited too long to end within its deadline" in str(error)
    assert error.retry_after_s is not None
    assert (in_time.wait().finish_reason, len(in_time.result.token_ids)) == (FinishReason.LENGTH, 4)
    assert never.wait().finish_reason is FinishReason.DEADLINE, "its client wanted what there is by then"


def test_a_server_with_a_free_seat_tries_even_what_may_fail(by_hand: Callable[..., VerifierEngine]) -> None:
    engine, order = by_hand(), list[str]()
    submit(engine, order, "teaches the pace")
    steps(engine)
    close = submit(engine, order, "close", deadline_ms=3900)
    steps(engine)
    assert close.wait().error is None


def test_a_running_request_that_is_lost_gives_its_place_to_others(
    by_hand: Callable[..., VerifierEngine], clock: FakeClock
) -> None:
    engine, order = by_hand(), list[str]()
    long = SamplingParams(max_tokens=30, ignore_eos=True)
    submit(engine, order, "teaches the pace")
    steps(engine)
    lost = submit(engine, order, "lost", sampling=long, deadline_ms=40_000)
    for _ in range(3):
        engine.run_step()
    clock.sleep(30.0)  # a pause of the machine
    engine.run_step()
    assert lost.result.finish_reason is None, "nobody else wants its place"
    other = submit(engine, order, "other")
    engine.run_step()
    assert (lost.wait().finish_reason, len(lost.result.token_ids)) == (FinishReason.DEADLINE, 4)
    steps(engine)
    assert len(other.wait().token_ids) == 4


def test_the_operator_can_have_every_deadline_used_up(
    by_hand: Callable[..., VerifierEngine], loaded: LoadedModel
) -> None:
    engine, order = by_hand(give_up_hopeless=False), list[str]()
    submit(engine, order, "teaches the pace")
    steps(engine)
    submit(engine, order, "running")
    engine.run_step()
    waits = submit(engine, order, "waits", deadline_ms=6000)
    steps(engine)
    assert waits.wait().finish_reason is FinishReason.DEADLINE
    assert waits.result.token_ids, "it ran to its deadline"


def mixed_requests() -> list[GenerationRequest]:
    draw = random.Random(3)
    return [
        make_request(
            [draw.randrange(3, 512) for _ in range(8 + 5 * i)],
            SamplingParams(temperature=0.8, max_tokens=24, ignore_eos=True),
            seed=i,
            priority=(i % 3) - 1,
            tenant="ab"[i % 2],
        )
        for i in range(6)
    ]


def test_preemption_takes_the_last_rank_first_and_changes_no_token(loaded: LoadedModel) -> None:
    plain = make_engine(loaded)
    expected = [run_all(plain, [request])[0].token_ids for request in mixed_requests()]
    plain.stop()
    small = make_engine(loaded, ScriptedProposer(random_tree(512)), num_blocks=34, block_size=4)
    results: list[Collected] = run_all(small, mixed_requests())
    small.stop()
    assert [result.token_ids for result in results] == expected
    preemptions = [result.stats.preemptions for result in results if result.stats]
    assert sum(preemptions) > 0, "the pool was meant to be too small"
    urgent = [n for n, request in zip(preemptions, mixed_requests(), strict=True) if request.priority == -1]
    assert sum(urgent) == 0
