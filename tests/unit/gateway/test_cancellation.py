"""A client that goes away: its work ends at once, everywhere."""

import asyncio
from collections.abc import Callable

import grpc
import pytest

from cluster.gateway.tenants import Metadata
from tests.unit.gateway.conftest import Harness, Ingress, StartHarness, ask
from workers.core.errors import OverloadedError


async def _soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():
            await asyncio.sleep(0.005)


def _idle(harness: Harness) -> bool:
    return all(verifier.running == 0 for verifier in harness.verifiers) and harness.service.active_requests == 0


@pytest.mark.parametrize("n", [1, 3])
async def test_closing_the_stream_cancels_the_verifiers(gateway: StartHarness, n: int) -> None:
    async with gateway({"step_s": 0.05}) as harness:
        stream = harness.service.generate(ask(n=n, max_tokens=400))
        for _ in range(4):
            await anext(stream)
        await _soon(lambda: harness.verifiers[0].running == n)
        await stream.aclose()
        await _soon(lambda: _idle(harness))
        assert harness.verifiers[0].cancelled == n


@pytest.mark.parametrize("n", [1, 3])
async def test_cancelling_the_reader_cancels_the_verifiers(gateway: StartHarness, n: int) -> None:
    """As Serve does it: CancelledError inside the rpc's method."""
    async with gateway({"step_s": 0.05}) as harness:

        async def read() -> None:
            async for _ in Ingress(harness.service).Generate(ask(n=n, max_tokens=400), _Context()):
                pass

        task = asyncio.create_task(read())
        await _soon(lambda: harness.verifiers[0].running == n)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _soon(lambda: _idle(harness))
        assert harness.verifiers[0].cancelled == n


async def test_cancelled_while_it_waits_for_a_verifier(gateway: StartHarness) -> None:
    async with gateway(replica_wait_ms=60_000) as harness:
        await harness.run(ask())
        harness.directory.verifier_records = []
        task = asyncio.create_task(harness.run(ask()))
        await asyncio.sleep(0.02)
        assert harness.service.active_requests == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert _idle(harness)


async def test_requests_beyond_the_limit_are_refused(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.05}, max_concurrent_requests=1) as harness:
        stream = harness.service.generate(ask(max_tokens=400))
        await anext(stream)
        with pytest.raises(OverloadedError, match="this gateway has 1 requests in progress, its limit"):
            await harness.run(ask())
        await stream.aclose()
        assert len(await harness.run(ask(max_tokens=1))) == 3


class _Context:
    def set_code(self, code: grpc.StatusCode) -> None:
        raise AssertionError(f"a cancelled call has no status of its own, not {code}")

    def set_details(self, details: str) -> None:
        raise AssertionError(details)

    def invocation_metadata(self) -> Metadata:
        return ()
