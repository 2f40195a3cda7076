"""Verifiers that are silent: which of them hang."""

import asyncio
import time

import pytest
from outrider.v1 import generation_pb2 as pb

from cluster.gateway.heartbeat import with_heartbeats
from tests.fakes.fake_verifier import FakeVerifier, Fault
from tests.unit.gateway.conftest import StartHarness, ask, tokens_of
from workers.core.errors import UnavailableError

QUICK = {"stall_probe_ms": 100, "stall_timeout_ms": 200}
HANG_S = 60.0


async def freeze(verifier: FakeVerifier, after_tokens: int = 6) -> None:
    verifier.faults = [Fault(after_tokens=after_tokens, hang=True)]
    verifier.frozen = True


@pytest.mark.parametrize("after_tokens", [0, 6])
async def test_an_answer_leaves_a_verifier_that_hangs(gateway: StartHarness, after_tokens: int) -> None:
    async with gateway({}, {}, **QUICK) as harness:
        undisturbed = await harness.run(ask())
        chosen = next(one for one in harness.verifiers if one.calls)
        states = harness.directory.verifier_records
        harness.directory.verifier_records = [chosen.record]
        await freeze(chosen, after_tokens)
        stream = harness.service.generate(ask())
        responses = [await anext(stream) for _ in range(1 + after_tokens // 3)]
        harness.directory.verifier_records = states
        async with asyncio.timeout(HANG_S):
            responses += [response async for response in stream]
        assert tokens_of(responses) == tokens_of(undisturbed)
        async with asyncio.timeout(HANG_S):
            while chosen.running:  # a call that is left is cancelled
                await asyncio.sleep(0.01)


async def test_new_answers_keep_away_until_it_answers_again(gateway: StartHarness) -> None:
    async with gateway({}, {}, **QUICK) as harness:
        await harness.run(ask())
        first, second = harness.verifiers
        harness.directory.verifier_records = [first.record]
        await freeze(first)
        stream = harness.service.generate(ask())
        for _ in range(2):  # `started` and tokens: it runs on the first
            await anext(stream)
        harness.directory.verifier_records = [first.record, second.record]
        async with asyncio.timeout(HANG_S):
            _ = [response async for response in stream]
        first.calls.clear()
        for _ in range(8):
            await harness.run(ask())
        assert not first.calls
        first.frozen = False
        async with asyncio.timeout(HANG_S):
            while not first.calls:
                await harness.run(ask())


async def test_an_answer_that_waits_takes_one_that_has_recovered(gateway: StartHarness) -> None:
    async with gateway({}, **QUICK, replica_wait_ms=600_000) as harness:
        undisturbed = await harness.run(ask())
        (verifier,) = harness.verifiers
        await freeze(verifier)
        running = asyncio.create_task(harness.run(ask()))
        async with asyncio.timeout(HANG_S):
            while verifier.running or verifier.faults:  # until the answer has left it
                await asyncio.sleep(0.02)
            verifier.frozen = False
            assert tokens_of(await running) == tokens_of(undisturbed)


async def test_one_that_has_nothing_to_say_is_waited_for(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.5}, **QUICK) as harness:
        responses = await harness.run(ask(max_tokens=6))
        (verifier,) = harness.verifiers
        assert len(tokens_of(responses)) == 6
        assert len(verifier.calls) == 1
        assert verifier.asked > 1, "it was asked, and answered"


async def test_streams_that_wait_for_the_same_verifier_ask_once(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.5}, stall_probe_ms=400, stall_timeout_ms=10_000) as harness:
        await harness.service.model()
        asked = harness.verifiers[0].asked
        await harness.run(ask(max_tokens=3, n=8))
        assert harness.verifiers[0].asked - asked < 8


async def test_it_can_be_turned_off(gateway: StartHarness) -> None:
    async with gateway({}, stall_probe_ms=0, stall_timeout_ms=100) as harness:
        await harness.service.model()
        await freeze(harness.verifiers[0])
        message = ask()
        message.deadline_ms = 800
        assert len(tokens_of(await harness.run(message))) == 6
        assert harness.verifiers[0].asked == 1


async def test_when_all_hang_it_ends_with_an_error(gateway: StartHarness) -> None:
    async with gateway({}, {}, **QUICK, max_attempts=2, replica_wait_ms=300) as harness:
        await harness.run(ask())
        for verifier in harness.verifiers:
            await freeze(verifier)
        async with asyncio.timeout(HANG_S):
            with pytest.raises(UnavailableError, match="gives no sign of life"):
                await harness.run(ask())
        assert harness.service.active_requests == 0


async def test_the_model_is_asked_of_one_that_answers(gateway: StartHarness) -> None:
    async with gateway({"frozen": True}, {}, replica_wait_ms=300) as harness:
        async with asyncio.timeout(HANG_S):
            assert len(tokens_of(await harness.run(ask()))) == 20


async def slow(period_s: float, count: int) -> "asyncio.AsyncGenerator[pb.GenerateResponse, None]":
    for index in range(count):
        await asyncio.sleep(period_s)
        yield pb.GenerateResponse(delta=pb.GenerationDelta(token_ids=[index]))


async def test_heartbeats_fill_silence_only() -> None:
    events = [one.WhichOneof("event") async for one in with_heartbeats(slow(0.25, 2), 0.1)]
    assert events.count("delta") == 2
    assert events[0] == "still_working"
    assert events[-1] == "delta"
    assert [one.WhichOneof("event") async for one in with_heartbeats(slow(0.01, 3), 30.0)] == ["delta"] * 3
    assert [one.WhichOneof("event") async for one in with_heartbeats(slow(0.1, 2), 0.0)] == ["delta"] * 2


async def test_leaving_a_stream_with_heartbeats_ends_it_at_once() -> None:
    ended = asyncio.Event()

    async def endless() -> "asyncio.AsyncGenerator[pb.GenerateResponse, None]":
        try:
            await asyncio.Event().wait()
            yield pb.GenerateResponse()
        finally:
            ended.set()

    stream = with_heartbeats(endless(), 0.01)
    await anext(stream)
    started = time.monotonic()
    await stream.aclose()
    assert ended.is_set()
    assert time.monotonic() - started < HANG_S


async def test_an_error_passes_through() -> None:
    async def failing() -> "asyncio.AsyncGenerator[pb.GenerateResponse, None]":
        yield pb.GenerateResponse()
        raise UnavailableError("gone")

    stream = with_heartbeats(failing(), 5.0)
    await anext(stream)
    with pytest.raises(UnavailableError, match="gone"):
        await anext(stream)
