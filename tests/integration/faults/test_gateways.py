"""A gateway, or the way to it, may break: the SDK resumes, with what it has received."""

import asyncio
from collections.abc import Callable

import pytest
from outrider import AsyncClient, Generation, SamplingParams, Speculation

from benchmarks.faults.processes import freeze, kill, thaw
from tests.integration.faults.kinds import params
from tests.integration.faults.rig import HANG_S, PATIENT, QUESTIONS, TOKENS, Rig, wait_until

FAULTS: dict[str, Callable[[Rig], object]] = {
    "kill -9": lambda rig: kill(rig.busy_gateway().process),
    "frozen": lambda rig: freeze(rig.busy_gateway().process),
    "connection cut": lambda rig: rig.front.cut(),
    "connection swallowed": lambda rig: rig.busy_gateway().proxy.black_hole(),
}

USUAL = {"kill -9", "frozen"}


@pytest.mark.parametrize("fault", params(FAULTS, USUAL))
def test_the_sync_client_resumes(rig: Rig, fault: str) -> None:
    with rig.client() as client:
        answers = rig.ask_all(client, lambda: FAULTS[fault](rig))
    assert all(answer.attempts >= 2 for answer in answers)


@pytest.mark.parametrize("fault", params(FAULTS, USUAL))
async def test_the_async_client_resumes_in_the_middle_of_its_streams(rig: Rig, fault: str) -> None:
    begun = asyncio.Event()

    async def read(client: AsyncClient, index: int) -> Generation:
        question = QUESTIONS[index]
        sampling = SamplingParams(
            max_tokens=TOKENS, temperature=question.temperature, seed=question.seed, ignore_eos=True
        )
        tokens: list[int] = []
        async with client.stream(question.prompt, sampling=sampling, speculation=Speculation.on()) as stream:
            async for delta in stream:
                tokens += delta.token_ids
                if len(tokens) > 10:
                    begun.set()
            result = await stream.result()
        assert result.token_ids == tuple(tokens) == rig.expected[question].token_ids
        assert result.text == rig.expected[question].text
        return result

    async with AsyncClient(rig.front.address, retry=PATIENT, silence_timeout=3.0) as client:
        async with asyncio.timeout(HANG_S):
            async with asyncio.TaskGroup() as group:
                reading = [group.create_task(read(client, index)) for index in range(len(QUESTIONS))]
                await begun.wait()
                await asyncio.to_thread(FAULTS[fault], rig)
    assert all(task.result().attempts >= 2 for task in reading)


def test_resuming_at_a_gateway_that_is_full(rig: Rig) -> None:
    """Each takes 6 requests; of 8 on two gateways, 8 are left for one."""
    with rig.client() as first, rig.client() as second:

        def fill_and_kill() -> None:
            rig.ask_all(second, lambda: kill(rig.gateways[0].process))

        answers = rig.ask_all(first, fill_and_kill)
        assert len(answers) == 4


def test_a_frozen_gateway_keeps_nothing_for_ever(rig: Rig) -> None:
    """Its requests at the verifiers end once it wakes up, or its connections have been found dead."""
    with rig.client() as client:
        rig.ask_all(client, lambda: freeze(rig.busy_gateway().process))
        for gateway in rig.gateways:
            thaw(gateway.process)
    wait_until(rig.at_rest, "what the frozen gateway had begun has ended")
