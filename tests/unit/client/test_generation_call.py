"""Folding events: what is refused, what a resumption asks for."""

from random import Random
from typing import Any

import pytest
from outrider import DeadlineExceededError, ProtocolViolationError, RetryPolicy
from outrider.generation_call import GenerationCall
from outrider.retry import Attempts
from outrider.testing import FakeClock
from outrider.v1 import common_pb2, generation_pb2


def new_call(n: int = 1, clock: FakeClock | None = None, **fields: Any) -> GenerationCall:
    request = generation_pb2.GenerateRequest(
        request_id="r", text="x", sampling=common_pb2.SamplingParams(seed=7, n=n), **fields
    )
    return GenerationCall(
        request, Attempts(RetryPolicy(), clock=clock or FakeClock(), random=Random(0), timeout_s=None)
    )


def started(**changes: Any) -> generation_pb2.GenerateResponse:
    values: dict[str, Any] = {"request_id": "r", "seed": 7, "model": "m", **changes}
    return generation_pb2.GenerateResponse(started=generation_pb2.GenerationStarted(**values))


def delta(index: int, token_ids: list[int], text: str) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(
        delta=generation_pb2.GenerationDelta(index=index, token_ids=token_ids, text=text)
    )


def finished(index: int, reason: str = "FINISH_REASON_STOP", **fields: Any) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(
        finished=generation_pb2.GenerationFinished(index=index, finish_reason=reason, **fields)
    )


def test_resume_points_say_what_has_arrived_in_code_points() -> None:
    call = new_call(n=4)
    assert not call.begin_attempt()[0].resume
    for event in (started(), delta(0, [1, 2, 3], "🚀ü"), delta(2, [9], ""), finished(2), finished(3)):
        call.receive(event)
    request, _ = call.begin_attempt()
    assert list(request.resume) == [
        generation_pb2.ResumePoint(index=0, token_ids=[1, 2, 3], text_length=2),
        generation_pb2.ResumePoint(index=2, token_ids=[9], finished=True),
        generation_pb2.ResumePoint(index=3, finished=True),
    ]
    assert (request.request_id, request.sampling.seed, request.text) == ("r", 7, "x")


def test_the_result_carries_everything() -> None:
    call = new_call()
    call.begin_attempt()
    stats = common_pb2.GenerationStats(output_tokens=2, verify_steps=1, drafted_per_depth=[3], exact=True)
    for event in (started(), delta(0, [1], "a"), delta(0, [2], "b"), finished(0, stop_string="c", stats=stats)):
        call.receive(event)
    assert call.complete
    generation = call.snapshot()
    (output,) = generation.outputs
    assert (generation.model, generation.seed, generation.request_id, generation.attempts) == ("m", 7, "r", 1)
    assert (output.text, output.token_ids, output.stop_string) == ("ab", (1, 2), "c")
    assert generation.finish_reason == "stop"
    assert generation.stats.acceptance_length == 2.0
    assert generation.stats.drafted_per_depth == (3,)


def test_empty_deltas_are_no_progress_and_do_not_reach_the_reader() -> None:
    call = new_call()
    call.begin_attempt()
    call.receive(started())
    assert call.receive(delta(0, [], "")) is None
    assert not call.begin_attempt()[0].resume


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([delta(0, [1], "a")], "before its first message, `started`"),
        ([finished(0)], "before its first message, `started`"),
        ([started(), delta(2, [1], "a")], "sent answer 2, asked for 2"),
        ([started(), finished(0), delta(0, [1], "a")], "went on with answer 0 after it was finished"),
        ([started(seed=8)], "asked for request 'r', seed 7, model 'm'; the server answered for request 'r', seed 8"),
        ([started(request_id="other")], "the server answered for request 'other'"),
        ([started(), started(model="n")], "seed 7, model 'm'; the server answered for request 'r', seed 7, model 'n'"),
    ],
)
def test_a_server_that_breaks_the_contract_is_not_believed(
    events: list[generation_pb2.GenerateResponse], message: str
) -> None:
    call = new_call(n=2)
    call.begin_attempt()
    *before, last = events
    for event in before:
        call.receive(event)
    with pytest.raises(ProtocolViolationError, match=message):
        call.receive(last)


def test_an_answer_may_be_told_finished_twice() -> None:
    call = new_call(n=2)
    call.begin_attempt()
    for event in (started(), delta(0, [1], "a"), finished(0)):
        call.receive(event)
    call.begin_attempt()
    for event in (started(), finished(0, "FINISH_REASON_LENGTH"), finished(1)):
        call.receive(event)
    assert call.complete
    assert call.snapshot().finish_reason == "stop"


def test_each_attempt_gets_what_is_left_of_the_deadline() -> None:
    clock = FakeClock()
    call = new_call(clock=clock, deadline_ms=1000)
    assert call.begin_attempt()[0].deadline_ms == 1000
    clock.sleep(0.4)
    assert call.begin_attempt()[0].deadline_ms == 600
    clock.sleep(0.6)
    with pytest.raises(DeadlineExceededError, match="the deadline of 1 s passed while the connection was broken"):
        call.begin_attempt()
