"""Reading, leaving and cancelling streams; time limits."""

import asyncio
import threading
import time

import grpc
import outrider
import pytest
from outrider.testing import FakeClock, FakeServer, Fault, prompt_text

from tests.unit.client.callers import Caller

CODE = grpc.StatusCode
SOON_S = 5.0
LONG = "word " * 400


def test_deltas_arrive_one_by_one(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.tokens_per_delta = 4
    deltas = caller.deltas(server.target, clock, {}, prompt="x", logprobs=0)
    assert [delta.text for delta in deltas] == ["Hell", "o, w", "orld"]
    assert deltas[0].token_ids == tuple(b"Hell")
    assert [logprob.token_id for logprob in deltas[0].logprobs] == list(b"Hell")


def test_several_answers(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.reply = lambda request, index: f"{prompt_text(request)} {index}"
    generation = caller.generate(server.target, clock, {}, messages=[{"role": "user", "content": "go"}], n=3)
    assert [output.text for output in generation.outputs] == ["user: go 0", "user: go 1", "user: go 2"]
    assert generation.stats.output_tokens == 30
    assert generation.stats.prompt_tokens == len("user: go")


def test_information(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    info = caller.unary("model_info", server.target, clock, {})
    assert info.model == "fake"
    assert info.allowed_rules == (outrider.VerificationRule.COUPLED, outrider.VerificationRule.REJECTION)
    assert caller.unary("server_info", server.target, clock, {}).replicas[0].role == "verifier"
    assert caller.unary("count_tokens", server.target, clock, {}, prompt="ü").token_ids == (0xC3, 0xBC)


def test_nothing_is_sent_before_the_first_read(server: FakeServer) -> None:
    with server.client() as client:
        stream = client.stream("x", seed=3, request_id="mine")
        assert (stream.request_id, stream.seed, server.requests) == ("mine", 3, [])
        assert stream.partial.text == ""
        assert stream.result().text == stream.partial.text == "Hello, world"
        assert list(stream) == []


def test_leaving_the_block_ends_the_request_on_the_server() -> None:
    with FakeServer(LONG, delay_s=0.005) as server, server.client() as client:
        with client.stream("x") as stream:
            next(stream)
        assert server.cancelled.wait(SOON_S)
        with pytest.raises(outrider.CancelledError):
            next(stream)


def test_dropping_a_stream_ends_the_request_on_the_server() -> None:
    with FakeServer(LONG, delay_s=0.005) as server, server.client() as client:
        next(client.stream("x"))
        assert server.cancelled.wait(SOON_S)


async def test_dropping_an_async_stream_ends_the_request_on_the_server() -> None:
    with FakeServer(LONG, delay_s=0.005) as server:
        async with server.async_client() as client:
            await anext(client.stream("x"))
            assert await asyncio.to_thread(server.cancelled.wait, SOON_S)


def test_leaving_the_block_after_the_end_is_no_cancellation(server: FakeServer) -> None:
    with server.client() as client, client.stream("x") as stream:
        stream.result()
    assert stream.result().text == "Hello, world"
    assert not server.cancelled.is_set()


def test_cancelling_from_another_thread(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=5, hang=True))
    with server.client() as client:
        stream = client.stream("x")
        head = [next(stream).text for _ in range(5)]
        timer = threading.Timer(0.05, stream.cancel)
        timer.start()
        with pytest.raises(outrider.CancelledError, match="the stream was cancelled") as caught:
            next(stream)
        timer.join()
        assert server.cancelled.wait(SOON_S)
        assert caught.value.partial is not None
        assert caught.value.partial.text == "".join(head) == "Hello"
        with pytest.raises(outrider.CancelledError):
            stream.result()
    assert len(server.requests) == 1


def test_cancelling_before_the_first_read(server: FakeServer) -> None:
    with server.client() as client:
        stream = client.stream("x")
        stream.cancel()
        with pytest.raises(outrider.CancelledError):
            stream.result()
    assert not server.requests


def test_a_failed_stream_does_not_look_finished_to_a_later_reader(server: FakeServer) -> None:
    server.fail_next(Fault(CODE.NOT_FOUND, "NotFoundError: gone", after_tokens=2))
    with server.client() as client:
        stream = client.stream("x")
        with pytest.raises(outrider.NotFoundError):
            stream.result()
        with pytest.raises(outrider.NotFoundError):
            list(stream)
        assert stream.partial.text == "He"


def test_closing_the_client_ends_its_streams(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=2, hang=True))
    client = server.client()
    stream = client.stream("x")
    timer = threading.Timer(0.05, client.close)
    timer.start()
    with pytest.raises(outrider.CancelledError, match="the client is closed"):
        stream.result()
    timer.join()
    for call in (client.model_info, lambda: client.generate("x")):
        with pytest.raises(outrider.CancelledError, match="the client is closed"):
            call()


async def served(server: FakeServer) -> None:
    """Until its first answer hangs, and what it had sent has most likely been read."""
    while not server.requests:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)


async def test_async_cancel_from_another_task(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=5, hang=True))
    async with server.async_client() as client:
        stream = client.stream("x")
        reading = asyncio.create_task(stream.result())
        await served(server)
        stream.cancel()
        with pytest.raises(outrider.CancelledError, match="the stream was cancelled") as caught:
            await reading
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hello"
    assert server.cancelled.wait(SOON_S)
    assert len(server.requests) == 1


async def test_cancelling_the_reading_task_ends_the_request_on_the_server(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=5, hang=True))
    async with server.async_client() as client:
        task = asyncio.create_task(client.generate("x"))
        await served(server)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.cancelled.wait, SOON_S)
    assert len(server.requests) == 1


async def test_asyncio_timeouts_work(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=5, hang=True))
    async with server.async_client() as client:
        stream = client.stream("x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await stream.result()
        with pytest.raises(outrider.CancelledError, match="the stream was left before its end"):
            await stream.result()
    assert len(server.requests) == 1


async def test_leaving_the_async_block_ends_the_request_on_the_server() -> None:
    with FakeServer(LONG, delay_s=0.005) as server:
        async with server.async_client() as client:
            async with client.stream("x") as stream:
                await anext(stream)
            assert await asyncio.to_thread(server.cancelled.wait, SOON_S)
            with pytest.raises(outrider.CancelledError):
                await anext(stream)


async def test_closing_the_async_client_ends_its_streams(server: FakeServer) -> None:
    server.fail_next(Fault(after_tokens=2, hang=True))
    client = server.async_client()
    task = asyncio.create_task(client.generate("x"))
    await asyncio.sleep(0.1)
    await client.close()
    with pytest.raises(outrider.CancelledError, match="the client is closed"):
        await task
    with pytest.raises(outrider.CancelledError, match="the client is closed"):
        await client.model_info()


async def test_one_async_client_serves_many_calls_at_once(server: FakeServer) -> None:
    async with server.async_client() as client:
        generations = await asyncio.gather(*(client.generate(str(i)) for i in range(20)))
    assert {generation.text for generation in generations} == {"Hello, world"}
    assert len({generation.request_id for generation in generations}) == 20


def test_an_async_client_may_be_built_outside_its_event_loop(server: FakeServer) -> None:
    client = server.async_client()

    async def use() -> str:
        async with client:
            return (await client.generate("x")).text

    assert asyncio.run(use()) == "Hello, world"


def test_the_clients_timeout(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    """In real time: gRPC's own timer ends the RPC."""
    server.fail_next(Fault(after_tokens=5, hang=True))
    before = time.monotonic()
    with pytest.raises(outrider.DeadlineExceededError, match=r"no answer within 0.3 s") as caught:
        caller.generate(server.target, clock, {"timeout": 0.3, "clock": time.monotonic}, prompt="x")
    assert 0.25 < time.monotonic() - before < 3.0
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hello"
    assert server.cancelled.wait(SOON_S)


def test_the_timeout_spans_all_attempts(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(*([Fault(CODE.UNAVAILABLE, "draining")] * 9))
    with pytest.raises(outrider.DeadlineExceededError, match="last: draining"):
        caller.generate(server.target, clock, {"timeout": 1.0}, prompt="x")
    assert clock.now < 1.0


def test_the_deadline_goes_to_the_server(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(Fault(CODE.UNAVAILABLE))
    caller.generate(server.target, clock, {}, prompt="x", deadline=3.0)
    first, second = (request.deadline_ms for request in server.requests)
    assert first == 3000
    assert second == 3000 - round(clock.now * 1000)


def test_a_refused_request_reads_like_a_local_one(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    with pytest.raises(outrider.NotFoundError, match="no model 'other'; this server has 'fake'"):
        caller.generate(server.target, clock, {}, prompt="x", model="other")


def test_nobody_listens(caller: Caller, clock: FakeClock) -> None:
    with FakeServer() as server:
        target = server.target
    with pytest.raises(outrider.ConnectionLostError, match=r"gave up after 6 attempts"):
        caller.generate(target, clock, {}, prompt="x")
