"""A replica announces its server, passes on health, and drains before it stops."""

import asyncio

import pytest

from cluster.deployments.replica import EngineReplica, drain_budget_s, leave_when_lost
from cluster.router.membership import ReplicaRecord
from workers.core.errors import UnavailableError
from workers.core.readings import Readings


class FakeServer:
    """Records the calls that a replica makes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.healthy = True
        self.complete = True

    async def start(self, host: str, port: int) -> str:
        self.calls.append(f"start {port}")
        return f"{host}:4711"

    async def drain(self, timeout_s: float) -> None:
        self.calls.append(f"drain {timeout_s:g}")

    async def stop(self) -> None:
        self.calls.append("stop")

    def check_health(self) -> None:
        if not self.healthy:
            raise UnavailableError("the engine has stopped")

    def load_signals(self) -> dict[str, float]:
        return {"sessions": 3.0}

    def readings(self) -> Readings:
        return Readings({}, {})

    def check_ranks(self) -> None:
        if not self.complete:
            raise UnavailableError("rank 1 has ended")

    def info(self) -> dict[str, object]:
        return {"model": "tiny", "model_fingerprint": "f", "tokenizer_hash": "t", "vocab_size": 64, "kv_block_size": 8}


class FakeReplica(EngineReplica):
    role = "drafter"

    async def start_with(self, server: FakeServer) -> None:
        await self._start(server, "replica-1", 12, grace_s=20.0)


async def test_announces_its_server() -> None:
    server, replica = FakeServer(), FakeReplica()
    await replica.start_with(server)
    record = ReplicaRecord.from_metadata(replica.record_replica_metadata())
    assert record is not None
    assert (record.role, record.replica_id, record.incarnation) == ("drafter", "replica-1", 12)
    assert record.address.endswith(":4711")
    assert (record.model, record.model_fingerprint, record.tokenizer_hash) == ("tiny", "f", "t")
    assert record.kv_block_size == 8
    assert replica.record_autoscaling_stats() == {"sessions": 3.0}
    assert server.calls == ["start 0"]


async def test_health_is_the_servers() -> None:
    server, replica = FakeServer(), FakeReplica()
    await replica.start_with(server)
    await replica.check_health()
    server.healthy = False
    with pytest.raises(UnavailableError, match="engine has stopped"):
        await replica.check_health()


async def test_drains_before_it_stops() -> None:
    server, replica = FakeServer(), FakeReplica()
    await replica.start_with(server)
    await replica.close()
    assert server.calls == ["start 0", "drain 18", "stop"]


async def test_a_replica_that_loses_a_rank_leaves_after_a_moment() -> None:
    server, left = FakeServer(), asyncio.Event()
    watch = asyncio.create_task(leave_when_lost(server.check_ranks, left.set))
    await asyncio.sleep(0.6)
    assert not left.is_set()
    server.complete = False
    await asyncio.wait_for(left.wait(), 60.0)
    await watch


async def test_a_replica_that_never_started_has_nothing_to_stop() -> None:
    await FakeReplica().close()


@pytest.mark.parametrize(("grace_s", "budget_s"), [(1.0, 0.0), (20.0, 18.0), (600.0, 540.0)])
def test_draining_ends_before_serve_kills(grace_s: float, budget_s: float) -> None:
    assert drain_budget_s(grace_s) == budget_s
