"""A stream that breaks, anywhere and anyhow, gives the result of one that does not."""

import asyncio
from collections.abc import Iterator

import grpc
import outrider
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider import RetryPolicy
from outrider.testing import FakeClock, FakeServer, Fault

from tests.unit.client.callers import CALLERS, Caller

CODE = grpc.StatusCode
BREAKS = [CODE.UNAVAILABLE, CODE.INTERNAL, CODE.UNKNOWN, CODE.CANCELLED, CODE.ABORTED, CODE.OK]
PATIENT = {"retry": RetryPolicy(max_attempts=20, max_suspect_attempts=20)}

texts = st.text(st.sampled_from("ab ü世🚀\n"), max_size=12)
faults = st.lists(
    st.builds(Fault, code=st.sampled_from(BREAKS), after_tokens=st.none() | st.integers(0, 12)), max_size=6
)


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@settings(deadline=None, max_examples=40)
@given(
    answers=st.lists(texts, min_size=1, max_size=3),
    faults=faults,
    tokens_per_delta=st.integers(1, 4),
    text_lag=st.integers(0, 3),
    kind=st.sampled_from(sorted(CALLERS)),
)
def test_resumed_equals_uninterrupted(
    shared: FakeServer, answers: list[str], faults: list[Fault], tokens_per_delta: int, text_lag: int, kind: str
) -> None:
    shared.reply = lambda request, index: answers[index]
    shared.tokens_per_delta, shared.text_lag = tokens_per_delta, text_lag
    options = {"prompt": "x", "n": len(answers), "seed": 5, "logprobs": 0}
    caller, clock = CALLERS[kind], FakeClock()
    whole = caller.generate(shared.target, clock, PATIENT, **options)
    assert [output.text for output in whole.outputs] == answers

    shared.reset()
    shared.fail_next(*faults)
    resumed = caller.generate(shared.target, clock, PATIENT, **options)
    assert resumed.outputs == whole.outputs
    assert resumed.attempts == len(shared.requests) <= len(faults) + 1
    assert len({(request.request_id, request.sampling.seed) for request in shared.requests}) == 1
    shared.reset()


@pytest.mark.parametrize("code", BREAKS)
def test_each_way_to_break(code: grpc.StatusCode, caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(Fault(code, after_tokens=5), Fault(code), Fault(code, after_tokens=3))
    generation = caller.generate(server.target, clock, {}, prompt="x")
    assert (generation.text, generation.attempts) == ("Hello, world", 4)
    assert [[list(p.token_ids) for p in request.resume] for request in server.requests] == [
        [],
        [list(b"Hello")],
        [list(b"Hello")],
        [list(b"Hello, w")],
    ]
    assert len(clock.sleeps) == 3


def test_deltas_before_and_after_the_break_join(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.reply = "Grüße 🚀"
    server.fail_next(*(Fault(CODE.INTERNAL, after_tokens=1) for _ in range(20)))
    deltas = caller.deltas(server.target, clock, {}, prompt="x")
    assert "".join(delta.text for delta in deltas) == "Grüße 🚀"
    assert [token for delta in deltas for token in delta.token_ids] == list("Grüße 🚀".encode())


@pytest.mark.parametrize("after_tokens", [None, 0])
def test_no_progress_gives_up_with_the_last_error(
    after_tokens: int | None, caller: Caller, server: FakeServer, clock: FakeClock
) -> None:
    fault = Fault(CODE.INTERNAL, "InternalError: internal error", after_tokens)
    server.fail_next(Fault(CODE.INTERNAL, after_tokens=5), *([fault] * 9))
    with pytest.raises(outrider.InternalError, match=r"internal error \(gave up after 3 attempts\)") as caught:
        caller.generate(server.target, clock, {}, prompt="x", request_id="mine")
    assert len(server.requests) == 3
    assert caught.value.request_id == "mine"
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hello"
    assert caught.value.partial.finish_reason is None


def test_a_break_after_the_last_answer_is_no_failure(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(Fault(CODE.INTERNAL, after_tokens=999))
    generation = caller.generate(server.target, clock, {}, prompt="x")
    assert (generation.text, generation.attempts) == ("Hello, world", 1)


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (CODE.INVALID_ARGUMENT, "InvalidRequestError: no", outrider.InvalidRequestError),
        (CODE.INVALID_ARGUMENT, "ContextLengthError: no", outrider.ContextLengthError),
        (CODE.NOT_FOUND, "NotFoundError: no", outrider.NotFoundError),
        (CODE.PERMISSION_DENIED, "RefusedError: no", outrider.RefusedError),
        (CODE.UNAUTHENTICATED, "no key", outrider.AuthenticationError),
    ],
)
def test_never_retried(
    code: grpc.StatusCode,
    details: str,
    kind: type[outrider.OutriderError],
    caller: Caller,
    server: FakeServer,
    clock: FakeClock,
) -> None:
    server.fail_next(Fault(code, details))
    with pytest.raises(kind):
        caller.generate(server.target, clock, {}, prompt="x")
    assert len(server.requests) == 1
    assert not clock.sleeps


def test_a_full_server_is_waited_for(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(*([Fault(CODE.RESOURCE_EXHAUSTED, "OverloadedError: full")] * 3))
    assert caller.generate(server.target, clock, {"retry": RetryPolicy(jitter=0.0)}, prompt="x").attempts == 4
    assert clock.sleeps == [0.5, 1.0, 2.0]


def test_a_stream_is_not_continued_by_another_model() -> None:
    with FakeServer("word " * 4000, delay_s=0.005) as server:

        def replace_model(seconds: float) -> None:
            server.model = "other"

        server.fail_next(Fault(CODE.UNAVAILABLE, after_tokens=4))
        with server.client(sleep=replace_model) as client:
            with pytest.raises(
                outrider.ProtocolViolationError, match=r"model 'fake'; the server answered .* 'other'"
            ) as e:
                client.generate("x")
            assert server.cancelled.wait(20.0)  # while the error is still held
            assert e.value.partial is not None
            assert e.value.partial.text == "word"


@pytest.mark.parametrize("method", ["model_info", "server_info", "count_tokens"])
def test_unary_calls_are_retried(method: str, caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    options = {"prompt": "x"} if method == "count_tokens" else {}
    server.fail_next(Fault(CODE.UNAVAILABLE), Fault(CODE.CANCELLED), Fault(CODE.UNKNOWN))
    assert caller.unary(method, server.target, clock, {}, **options)
    assert len(clock.sleeps) == 3
    server.fail_next(Fault(CODE.INVALID_ARGUMENT, "InvalidRequestError: empty prompt"))
    with pytest.raises(outrider.InvalidRequestError, match="empty prompt"):
        caller.unary(method, server.target, clock, {}, **options)


def test_a_server_that_comes_back_is_found_again() -> None:
    """The connection itself dies, in the middle of a stream; the next server listens at the same address."""
    with FakeServer("Hello, world", delay_s=0.05) as first, first.client() as client:
        stream = client.stream("x")
        head = next(stream)
        first.close()
        with FakeServer("Hello, world", port=first.port):
            rest = stream.result()
    assert head.text == "H"
    assert rest.text == "Hello, world"
    assert rest.attempts >= 2


def test_the_last_attempts_are_counted_by_both_clients_alike(server: FakeServer) -> None:
    async def run() -> outrider.OutriderError:
        async with server.async_client(retry=RetryPolicy(max_attempts=2, initial_backoff_s=0.0)) as client:
            with pytest.raises(outrider.ConnectionLostError) as caught:
                await client.generate("x")
            return caught.value

    server.fail_next(*([Fault(CODE.CANCELLED)] * 2))
    assert asyncio.run(run()).status == "CANCELLED"


def test_a_proxy_that_does_not_know_the_application_yet_is_asked_again(
    caller: Caller, server: FakeServer, clock: FakeClock
) -> None:
    """Serve's proxy answers so between its start and its first word from the controller."""
    details = "Application metadata not set. Ping /ray.serve.RayServeAPIService/ListApplications for available ..."
    server.fail_next(Fault(CODE.NOT_FOUND, details), Fault(CODE.NOT_FOUND, details))
    assert caller.generate(server.target, clock, {}, prompt="x").attempts == 3
    server.fail_next(*[Fault(CODE.NOT_FOUND, details)] * 9)
    with pytest.raises(outrider.NotFoundError, match=r"Application metadata not set.*gave up after 6 attempts"):
        caller.generate(server.target, clock, {}, prompt="x")
