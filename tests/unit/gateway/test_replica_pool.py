"""What a gateway keeps of replicas that come and go, and of choices that come to nothing."""

import asyncio
import random
import time
from dataclasses import replace

import numpy as np
import pytest

from cluster.config.routing import PoolRouting, RoutingConfig
from cluster.gateway.replica_pool import ReplicaPool
from cluster.router.decision import Decision
from cluster.router.snapshot import Costs, PoolSnapshot, RequestShape
from tests.fakes.fake_verifier import FakeDirectory
from tests.unit.gateway.conftest import BUSY, Harness, StartHarness, ask, tokens_of
from tests.unit.router.pools import record, request
from workers.core.errors import InternalError


class Never:
    """Excludes all."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        return {"never": np.full(len(pool), np.inf)}


class Nonsense:
    """Returns what no policy may."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        return {"nonsense": np.zeros(len(pool) + 1)}


class Raises:
    """Has a bug."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        raise ZeroDivisionError


def drafting(policy: type) -> RoutingConfig:
    return RoutingConfig(drafters=PoolRouting(policy=f"{__name__}:{policy.__name__}"))


def with_drafter(harness: Harness) -> None:
    verifier = harness.verifiers[0].record
    harness.directory.drafter_records = [
        replace(verifier, role="drafter", replica_id="drafter-0", address="127.0.0.1:1")
    ]


def in_flight(pool: ReplicaPool) -> int:
    """Requests that replicas are believed to have from this gateway."""
    tables = [one.table for one in (pool._verifiers, pool._drafters)]
    return sum(int(table.rows(table.those(lambda one: True))["in_flight"].sum()) for table in tables)


async def test_a_replica_that_was_away_for_a_moment_is_followed_again(gateway: StartHarness) -> None:
    """A request ends in that moment: the channel is closed, and the stream of events with it."""
    async with gateway({"step_s": 0.01}) as harness:
        await harness.settle()
        stream = harness.service.generate(ask())
        assert (await anext(stream)).HasField("started")
        assert (await anext(stream)).HasField("delta")
        listed = harness.directory.verifier_records
        harness.directory.verifier_records = []
        assert len([one async for one in stream]) > 1
        harness.verifiers[0].load.CopyFrom(BUSY)
        harness.directory.verifier_records = listed
        async with asyncio.timeout(60):
            while harness.service._pool.load(listed[0]).running_requests != BUSY.running_requests:
                harness.service.refresh()
                await asyncio.sleep(0.01)


async def test_a_policy_may_exclude_all_drafters(gateway: StartHarness) -> None:
    async with gateway(routing=drafting(Never)) as harness:
        with_drafter(harness)
        for _ in range(3):
            assert len(tokens_of(await harness.run(ask()))) == 20
        assert [call.drafters for call in harness.verifiers[0].calls] == [()] * 3
        assert in_flight(harness.service._pool) == 0


@pytest.mark.parametrize(("policy", "error"), [(Nonsense, InternalError), (Raises, ZeroDivisionError)])
async def test_a_verifier_is_released_when_no_drafter_can_be_chosen(
    gateway: StartHarness, policy: type, error: type[Exception]
) -> None:
    async with gateway(routing=drafting(policy)) as harness:
        with_drafter(harness)
        for _ in range(3):
            with pytest.raises(error):
                await harness.run(ask())
        assert not harness.verifiers[0].calls
        assert in_flight(harness.service._pool) == 0


async def test_both_are_released_when_the_answer_has_ended(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.01}) as harness:
        with_drafter(harness)
        stream = harness.service.generate(ask())
        assert (await anext(stream)).HasField("started")
        assert (await anext(stream)).HasField("delta")
        assert in_flight(harness.service._pool) == 2
        await stream.aclose()
        assert in_flight(harness.service._pool) == 0
        assert [one.drafter_id for one in harness.verifiers[0].calls[0].drafters] == ["drafter-0"]


async def test_a_choice_that_cannot_be_told_of_is_taken_back() -> None:
    def routed(decision: Decision) -> None:
        raise RuntimeError("no room for another number")

    directory = FakeDirectory([record("v")], [replace(record("d"), role="drafter")])
    pool = ReplicaPool(directory, RoutingConfig(), clock=time.monotonic, rng=random.Random(1), routed=routed)
    with pytest.raises(RuntimeError):
        await pool.verifier(request(), {}, 0.0)
    with pytest.raises(RuntimeError), pool.drafters(request(), "t", 1):
        pass
    assert (len(pool._verifiers.table), len(pool._drafters.table)) == (1, 1)
    assert in_flight(pool) == 0
    await pool.close()
