"""Losing a verifier: nothing lost, nothing repeated, and the same text."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import grpc
import pytest
from outrider.v1 import common_pb2

from tests.fakes.fake_verifier import CLEAN_END, FakeVerifier, Fault, pseudo_random_tokens
from tests.unit.gateway.conftest import BUSY, StartHarness, ask, finished_of, text_of, tokens_of
from workers.core.errors import InternalError, InvalidRequestError, OverloadedError, UnavailableError
from workers.text.tokenizer import Tokenizer

LOST = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.ABORTED]


@pytest.mark.parametrize("how", [*LOST, CLEAN_END, UnavailableError("draining")], ids=str)
async def test_the_answer_goes_on_elsewhere(gateway: StartHarness, how: grpc.StatusCode | UnavailableError) -> None:
    async with gateway({}, {}) as harness:
        undisturbed = await harness.run(ask())
        for verifier in harness.verifiers:
            verifier.calls.clear()
            verifier.faults = [Fault(after_tokens=6, how=how)]
        responses = await harness.run(ask())
        assert (tokens_of(responses), text_of(responses)) == (tokens_of(undisturbed), text_of(undisturbed))
        calls = [call for verifier in harness.verifiers for call in verifier.calls]
        carried = sorted(len(call.output_token_ids) for call in calls)
        assert carried[:2] == [0, 6]
        assert all(
            call.output_token_ids == tuple(tokens_of(undisturbed)[: len(call.output_token_ids)]) for call in calls
        )
        stats = finished_of(responses).stats
        assert stats.output_tokens == 20
        assert stats.verify_steps == 2 + 2 + 3  # 6, 6 and 8 tokens, 3 a step


@pytest.mark.parametrize("after", range(0, 21, 3))
async def test_wherever_it_breaks(gateway: StartHarness, after: int) -> None:
    sampling: dict[str, Any] = {"stop": ["\x00never"], "n": 2}
    async with gateway({}, {}) as harness:
        undisturbed = await harness.run(ask(**sampling))
        harness.verifiers[0].faults = [Fault(after_tokens=after)] * 2
        responses = await harness.run(ask(**sampling))
        for index in range(2):
            assert tokens_of(responses, index) == tokens_of(undisturbed, index)
            assert text_of(responses, index) == text_of(undisturbed, index)
            assert finished_of(responses, index).stats.output_tokens == 20


async def test_lost_after_the_last_token_needs_no_other_verifier(gateway: StartHarness) -> None:
    """Whoever knows all tokens knows how the answer ended."""
    async with gateway({"tokens_per_step": 20, "faults": [Fault(after_tokens=20)]}) as harness:
        responses = await harness.run(ask())
        assert finished_of(responses).finish_reason == common_pb2.FINISH_REASON_LENGTH
        assert len(harness.verifiers[0].calls) == 1


async def test_a_process_that_dies_is_replaced(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway({"step_s": 0.01}, replica_wait_ms=5000) as harness:
        undisturbed = await harness.run(ask())
        stream = harness.service.generate(ask())
        responses = [await anext(stream) for _ in range(3)]
        await harness.verifiers[0].stop()
        harness.directory.verifier_records = []

        async def replace_it() -> None:
            await asyncio.sleep(0.2)
            again = await FakeVerifier(
                tokenizer, pseudo_random_tokens(3, 511), replica_id="verifier-0", incarnation=2
            ).__aenter__()
            harness.verifiers.append(again)
            harness.directory.verifier_records = [again.record]

        replacing = asyncio.create_task(replace_it())
        responses += [response async for response in stream]
        await replacing
        assert tokens_of(responses) == tokens_of(undisturbed)
        assert text_of(responses) == text_of(undisturbed)


async def test_a_verifier_that_failed_once_is_tried_again_when_there_is_no_other(gateway: StartHarness) -> None:
    async with gateway({"faults": [Fault(after_tokens=3)]}, replica_wait_ms=3000) as harness:
        assert len(tokens_of(await harness.run(ask()))) == 20
        assert len(harness.verifiers[0].calls) == 2


async def test_attempts_are_bounded(gateway: StartHarness) -> None:
    fail = {"faults": [Fault(after_tokens=3)] * 9}
    async with gateway(fail, fail, fail, max_attempts=3) as harness:
        with pytest.raises(UnavailableError, match=r"gave up after 3 verifiers; the last one: verifier-\d failed with"):
            await harness.run(ask())
        assert sum(len(verifier.calls) for verifier in harness.verifiers) == 3
        assert harness.service.active_requests == 0


async def test_no_verifier_at_all(gateway: StartHarness) -> None:
    async with gateway() as harness:
        await harness.run(ask())
        harness.directory.verifier_records = []
        with pytest.raises(UnavailableError, match=r"no verifier is available \(waited 0.3 s\)"):
            await harness.run(ask())


async def test_no_verifier_until_the_deadline(gateway: StartHarness) -> None:
    async with gateway(replica_wait_ms=60_000) as harness:
        await harness.run(ask())
        harness.directory.verifier_records = []
        message = ask()
        message.deadline_ms = 100
        started = time.monotonic()
        assert finished_of(await harness.run(message)).finish_reason == common_pb2.FINISH_REASON_DEADLINE
        assert time.monotonic() - started < 5


async def test_a_full_verifier_sends_the_answer_to_another(gateway: StartHarness) -> None:
    full = Fault(how=OverloadedError("the queue is full"))
    async with gateway({"faults": [full]}, {"load": BUSY}) as harness:
        await harness.settle()
        assert len(tokens_of(await harness.run(ask()))) == 20
        assert [len(verifier.calls) for verifier in harness.verifiers] == [1, 1]


async def test_when_all_are_full_the_client_hears_it_at_once(gateway: StartHarness) -> None:
    full = Fault(how=OverloadedError("the queue is full"))
    async with gateway({"faults": [full]}, {"faults": [full]}, replica_wait_ms=60_000) as harness:
        with pytest.raises(OverloadedError, match="the queue is full"):
            await harness.run(ask())


async def test_a_refusal_is_final(gateway: StartHarness) -> None:
    async with gateway({"faults": [Fault(how=InvalidRequestError("top_k: no"))]}, {"load": BUSY}) as harness:
        await harness.settle()
        with pytest.raises(InvalidRequestError, match="top_k: no"):
            await harness.run(ask())
        assert not harness.verifiers[1].calls


async def test_a_request_that_fails_in_a_living_verifier_is_not_tried_on_others(gateway: StartHarness) -> None:
    fault = Fault(how=InternalError("this request failed in the verifier"))
    async with gateway({"faults": [fault]}, {"load": BUSY}) as harness:
        await harness.settle()
        with pytest.raises(InternalError, match="this request failed"):
            await harness.run(ask())
        assert not harness.verifiers[1].calls


async def test_an_error_of_one_answer_ends_the_others(gateway: StartHarness) -> None:
    faults = [Fault(after_tokens=6, how=InvalidRequestError("no"))]
    async with gateway({"faults": faults, "step_s": 0.05}) as harness:
        with pytest.raises(InvalidRequestError):
            await harness.run(ask(n=3))
        await asyncio.sleep(0.05)
        assert harness.verifiers[0].running == 0


async def test_another_model_does_not_finish_an_answer(gateway: StartHarness) -> None:
    """While a deployment is updated, two models are served: an answer stays with the one that began it."""
    async with gateway({"faults": [Fault(after_tokens=6)]}, {}, replica_wait_ms=300) as harness:
        first, second = harness.verifiers
        updated = replace(second.record, model_fingerprint="updated")
        harness.directory.verifier_records = [first.record]
        stream = harness.service.generate(ask())
        responses = [await anext(stream) for _ in range(2)]
        harness.directory.verifier_records = [updated]
        with pytest.raises(UnavailableError, match="runs the model which began the answer"):
            responses.extend([response async for response in stream])
        assert not second.calls
        assert len(tokens_of(await harness.run(ask()))) == 20  # new answers take it
