"""The engine around the algorithm: ends, limits, refusals, and that nothing is left behind."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.engines import Collected, Collector, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.scripted_proposer import ScriptedProposer, oracle, random_tree
from workers.core.errors import (
    ConfigurationError,
    ContextLengthError,
    InternalError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
)
from workers.core.request import FinishReason
from workers.core.sampling_params import SamplingParams, SpeculationMode
from workers.models.loaded import LoadedModel
from workers.text.tokenizer import Tokenizer
from workers.verifier.engine import VerifierEngine

PROMPT = list(range(20, 50))
ENDLESS = SamplingParams(temperature=0.8, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


@pytest.fixture
def engine(loaded: LoadedModel) -> Iterator[VerifierEngine]:
    engine = make_engine(loaded, ScriptedProposer(random_tree(512)))
    yield engine
    engine.stop()


def answer(engine: VerifierEngine, sampling: SamplingParams, **request: Any) -> Collected:
    return run_all(engine, [make_request(PROMPT, sampling, seed=3, **request)])[0]


def eventually(condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def all_free(engine: VerifierEngine) -> bool:
    engine._kv_cache.check_invariants()
    return engine.is_idle and engine.num_free_blocks == engine._kv_cache.num_blocks


def test_max_tokens_ends_with_length(engine: VerifierEngine) -> None:
    result = answer(engine, SamplingParams(temperature=0.8, max_tokens=7, ignore_eos=True))
    assert (len(result.token_ids), result.finish_reason) == (7, FinishReason.LENGTH)
    assert result.stats is not None
    assert (result.stats.output_tokens, result.stats.prompt_tokens, result.stats.seed) == (7, 30, 3)
    assert 0 < result.stats.time_to_first_token_ms <= result.stats.total_ms


def test_without_max_tokens_the_context_is_the_limit(loaded: LoadedModel) -> None:
    engine = make_engine(dataclasses.replace(loaded, context_length=70), ScriptedProposer(random_tree(512)))
    result = answer(engine, ENDLESS)
    engine.stop()
    assert len(PROMPT) + len(result.token_ids) == 70
    assert result.finish_reason is FinishReason.LENGTH


def test_stop_tokens_end_it_after_them(engine: VerifierEngine) -> None:
    free = answer(engine, SamplingParams(temperature=0.8, max_tokens=20)).token_ids
    stopped = answer(engine, SamplingParams(temperature=0.8, max_tokens=20, stop_token_ids=(free[8],)))
    first = free.index(free[8])
    assert stopped.token_ids == free[: first + 1]
    assert stopped.finish_reason is FinishReason.STOP


def test_a_stop_string_ends_it_in_the_same_step(loaded: LoadedModel, tiny_target: Path) -> None:
    plain = make_engine(loaded)
    sampling = SamplingParams(temperature=0.8, max_tokens=20)
    free = run_all(plain, [make_request(PROMPT, sampling, seed=3)])[0].token_ids
    plain.stop()
    text = Tokenizer.load(str(tiny_target)).decode(free)
    stop = next(text[i : i + 3] for i in range(8, len(text) - 3) if text[i : i + 3].isascii())
    engine = make_engine(loaded, ScriptedProposer(oracle({tuple(PROMPT): free}, 512)))
    result = answer(engine, SamplingParams(temperature=0.8, max_tokens=20, stop=("\x00never", stop)))
    engine.stop()
    assert (result.finish_reason, result.stop_string) == (FinishReason.STOP, stop)
    assert result.token_ids == free[: len(result.token_ids)]
    kept = Tokenizer.load(str(tiny_target)).decode(result.token_ids)
    assert stop in kept
    assert stop not in Tokenizer.load(str(tiny_target)).decode(result.token_ids[:-1])


def test_min_tokens_holds_ends_back(engine: VerifierEngine) -> None:
    sampling = SamplingParams(temperature=0.8, max_tokens=20, min_tokens=10, stop_token_ids=tuple(range(3, 67)))
    assert len(answer(engine, sampling).token_ids) >= 10
    free = SamplingParams(temperature=0.8, max_tokens=20, stop_token_ids=tuple(range(3, 67)))
    assert len(answer(engine, free).token_ids) < 10


def test_logprobs_belong_to_their_tokens(engine: VerifierEngine) -> None:
    result = answer(engine, SamplingParams(temperature=0.0, max_tokens=9, logprobs=3))
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    for entry in result.logprobs:
        assert entry.top[0] == (entry.token_id, entry.logprob), "greedy picks the most probable token"
        assert [value for _, value in entry.top] == sorted((value for _, value in entry.top), reverse=True)


def test_a_cancelled_request_gives_back_its_blocks_within_a_second(engine: VerifierEngine) -> None:
    collector = Collector()
    key = engine.submit(make_request(PROMPT, ENDLESS), collector)
    assert collector.first.wait(10)
    started = time.monotonic()
    engine.cancel(key)
    result = collector.wait()
    assert eventually(lambda: all_free(engine), 1.0)
    assert time.monotonic() - started < 1.0
    assert result.finish_reason is FinishReason.CANCELLED


def test_a_deadline_ends_it_with_what_there_is(engine: VerifierEngine) -> None:
    result = answer(engine, ENDLESS, deadline_ms=200)
    assert result.finish_reason is FinishReason.DEADLINE
    assert result.stats is not None
    assert result.stats.total_ms >= 200


def test_a_full_queue_refuses_and_says_so(loaded: LoadedModel) -> None:
    engine = make_engine(loaded, max_running_requests=1, max_waiting_requests=2)
    collectors = [Collector() for _ in range(3)]
    keys = [engine.submit(make_request(PROMPT, ENDLESS), collector) for collector in collectors]
    with pytest.raises(OverloadedError, match="queue of this verifier is full"):
        engine.submit(make_request(PROMPT, ENDLESS), Collector())
    for key in keys:
        engine.cancel(key)
    assert [c.wait().finish_reason for c in collectors] == [FinishReason.CANCELLED] * 3
    assert answer(engine, SamplingParams(max_tokens=2, ignore_eos=True)).token_ids
    engine.stop()


@pytest.mark.parametrize(
    ("prompt", "sampling", "error", "message"),
    [
        ([], SamplingParams(), InvalidRequestError, "prompt is empty"),
        ([5, 512], SamplingParams(), InvalidRequestError, "token 512 is not below the vocabulary size 512"),
        ([5] * 500, SamplingParams(max_tokens=13), ContextLengthError, "500 prompt tokens .* limit of 512"),
        ([5] * 512, SamplingParams(), ContextLengthError, "limit of 512"),
        ([5], SamplingParams(logit_bias={600: 1.0}), InvalidRequestError, "logit_bias: token id 600"),
        ([5], SamplingParams(stop_token_ids=(512,)), InvalidRequestError, "stop_token_ids: token id 512"),
    ],
)
def test_requests_that_cannot_be_served(
    engine: VerifierEngine, prompt: list[int], sampling: SamplingParams, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        engine.submit(make_request(prompt, sampling), Collector())
    assert answer(engine, SamplingParams(max_tokens=2, ignore_eos=True)).token_ids, "the engine goes on"


def test_a_request_larger_than_the_pool_is_refused(loaded: LoadedModel) -> None:
    engine = make_engine(loaded, num_blocks=10, block_size=4)
    with pytest.raises(ContextLengthError, match=r"context 512, KV cache 40"):
        engine.submit(make_request(PROMPT, SamplingParams(max_tokens=11)), Collector())
    result = answer(engine, SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True))
    assert len(result.token_ids) == 10, "exactly the whole pool works, trees or not"
    engine.stop()


def test_stopping_tells_every_request(loaded: LoadedModel) -> None:
    engine = make_engine(loaded, max_running_requests=1)
    collectors = [Collector() for _ in range(3)]
    for collector in collectors:
        engine.submit(make_request(PROMPT, ENDLESS), collector)
    engine.stop()
    assert all(isinstance(c.wait().error, UnavailableError) for c in collectors)
    with pytest.raises(UnavailableError):
        engine.submit(make_request(PROMPT), Collector())


def test_a_failing_step_is_reported_and_makes_the_engine_unhealthy(loaded: LoadedModel) -> None:
    class Broken(ScriptedProposer):
        def collect(self, wants: Any) -> Any:
            raise MemoryError("no more")

    engine = make_engine(loaded, Broken(random_tree(512)))
    collector = Collector()
    engine.submit(make_request(PROMPT), collector)
    assert isinstance(collector.wait().error, UnavailableError)
    assert eventually(lambda: not engine._thread.is_alive())
    with pytest.raises(UnavailableError, match="failed"):
        engine.check_health()


def test_speculation_off_opens_no_session(loaded: LoadedModel) -> None:
    proposer = ScriptedProposer(random_tree(512))
    engine = make_engine(loaded, proposer)
    result = answer(engine, SamplingParams(max_tokens=5, ignore_eos=True), mode=SpeculationMode.OFF)
    engine.stop()
    assert proposer.calls == 0
    assert result.stats is not None
    assert (result.stats.verify_steps, result.stats.plain_steps, result.stats.drafted_tokens) == (5, 5, 0)


def test_one_request_that_fails_takes_no_other_with_it(loaded: LoadedModel) -> None:
    class WrongBase(ScriptedProposer):
        """Breaks the contract for one request: the verification rule raises."""

        def collect(self, wants: Any) -> Any:
            proposals = super().collect(wants)
            if 1 in proposals:
                proposals[1] = dataclasses.replace(proposals[1], base_len=proposals[1].base_len + 1)
            return proposals

    engine = make_engine(loaded, WrongBase(random_tree(512)))
    poisoned, healthy = Collector(), Collector()
    engine.submit(make_request(PROMPT), poisoned)
    engine.submit(make_request(PROMPT, seed=4), healthy)
    assert isinstance(poisoned.wait().error, InternalError)
    assert len(healthy.wait().token_ids) == 24
    engine.check_health()
    assert eventually(lambda: all_free(engine))
    engine.stop()


def test_a_pool_larger_than_the_machine_is_refused(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match=r"2000000000 blocks of 16 tokens need .* GiB, cpu has .* GiB"):
        make_engine(loaded, num_blocks=2_000_000_000, block_size=16)


def test_a_step_that_never_ends_is_noticed(loaded: LoadedModel) -> None:
    """Its proposer hangs, as a kernel or a collective may; whoever asks is told, after a while."""
    entered, release = threading.Event(), threading.Event()

    class Hanging(ScriptedProposer):
        def collect(self, wants):  # type: ignore[no-untyped-def]
            entered.set()
            release.wait(60.0)
            return super().collect(wants)

    engine = make_engine(loaded, Hanging(random_tree(512)))
    collector = Collector()
    engine.submit(make_request(PROMPT, SamplingParams(max_tokens=4), seed=3), collector)
    assert entered.wait(60.0)
    time.sleep(0.05)
    engine.check_health(stuck_after_s=3600.0)
    with pytest.raises(UnavailableError, match=r"stuck in a step for more than 0\.01 s"):
        engine.check_health(stuck_after_s=0.01)
    release.set()
    collector.wait()
    assert eventually(lambda: engine._busy_since is None)
    engine.check_health(stuck_after_s=0.0)
    engine.stop()


def test_equal_prompts_that_come_together_are_computed_once(loaded: LoadedModel) -> None:
    engine = make_engine(loaded, max_tokens_per_step=64, started=False)
    prompt = [3 + i % 400 for i in range(96)]  # more than one step holds
    sinks = [Collector() for _ in range(4)]
    for sink in sinks:
        engine.submit(make_request(prompt, SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)), sink)
    while not engine.is_idle:
        engine.run_step()
    stats = [sink.wait().stats for sink in sinks]
    assert [one.cached_prompt_tokens for one in stats if one is not None] == [0, 64, 92, 92]


@pytest.mark.parametrize("mode", [SpeculationMode.OFF, SpeculationMode.ON])
def test_speculation_keeps_the_prefix_hits(loaded: LoadedModel, mode: SpeculationMode) -> None:
    """Each turn of a conversation finds all full blocks of the turns before it, answers included."""
    engine = make_engine(loaded, ScriptedProposer(random_tree(512)), num_blocks=256)
    conversation, known = list(PROMPT), 0
    for turn in range(5):
        sampling = SamplingParams(temperature=0.8, max_tokens=21, ignore_eos=True)
        result = run_all(engine, [make_request(conversation, sampling, seed=turn, mode=mode)])[0]
        assert result.stats is not None
        assert result.stats.cached_prompt_tokens == known // 4 * 4
        known = len(conversation) + 20  # the last token's K/V was never computed
        conversation += [*result.token_ids, 7, 8, 9]
    engine.stop()
