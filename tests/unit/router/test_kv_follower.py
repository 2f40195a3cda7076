"""Event streams over real gRPC: breaks, gaps, restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc

from cluster.router.kv_follower import KvFollower
from cluster.router.membership import ReplicaRecord
from tests.unit.router.pools import Rig, record
from workers.rpc.channels import open_channel, start_server

Script = Sequence[Sequence[pb.KvEventsResponse]]


def message(number: int, *stored: int, previous: int | None = None, **fields: Any) -> pb.KvEventsResponse:
    """The change with this number; a snapshot when `cleared`."""
    before = number - 1 if previous is None else previous
    values = {"incarnation": 1, "previous_sequence_number": before, "load": pb.ReplicaLoad(running_requests=number)}
    return pb.KvEventsResponse(sequence_number=number, stored_block_hashes=stored, **(values | fields))


class Scripted(verifier_pb2_grpc.VerifierServiceServicer):
    """Each stream sends the next part of the script and breaks; the last one stays open."""

    def __init__(self, script: Script) -> None:
        self.script = list(script)
        self.asked: list[tuple[int, int]] = []
        self.all_stay_open = False

    async def KvEvents(
        self, request: pb.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.KvEventsResponse]:
        self.asked.append((request.incarnation, request.after_sequence_number))
        part, last = self.script.pop(0), self.all_stay_open or not self.script
        for one in part:
            yield one
        if last:
            await asyncio.Event().wait()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "scripted")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def follow(service: verifier_pb2_grpc.VerifierServiceServicer, rig: Rig) -> AsyncIterator[KvFollower]:
    """A follower of the one replica "a", which the service is."""
    server = await start_server([lambda s: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(service, s)])
    channel = open_channel(server.address)
    stub: verifier_pb2_grpc.VerifierServiceAsyncStub = verifier_pb2_grpc.VerifierServiceStub(channel)
    follower = KvFollower(rig.pool, lambda record, request: stub.KvEvents(request))
    follower.update([replace(record("a"), address=server.address)])
    try:
        yield follower
    finally:
        await follower.close()
        await channel.close()
        await server.stop(None)


async def play(script: Script, expected: set[int], check: Callable[[KvFollower, Rig], None] | None = None) -> Scripted:
    """Follow until the index holds `expected` and the whole script has been played."""
    service, rig = Scripted(script), Rig(())
    async with follow(service, rig) as follower:
        await _until(lambda: not service.script and rig.pool.index._held.get(0, set()) == expected)
        if check is not None:
            check(follower, rig)
    return service


async def test_a_snapshot_and_changes() -> None:
    def check(follower: KvFollower, rig: Rig) -> None:
        assert rig.pool.load(("a", 1)).running_requests == 6

    changes = [message(4, 1, 2, cleared=True), message(5, 3), message(6, removed_block_hashes=[1])]
    service = await play([changes], {2, 3}, check)
    assert service.asked == [(1, 0)]


async def test_a_broken_stream_goes_on_behind_the_last_number() -> None:
    service = await play([[message(1, 1, cleared=True), message(2, 2)], [message(5, 3, previous=2)]], {1, 2, 3})
    assert service.asked == [(1, 0), (1, 2)]


async def test_a_gap_is_asked_for_again() -> None:
    script = [[message(1, 1, cleared=True), message(3, 3)], [message(3, 2, 3, previous=1)]]
    service = await play(script, {1, 2, 3})
    assert service.asked == [(1, 0), (1, 1)]


async def test_a_new_snapshot_replaces_everything() -> None:
    await play([[message(1, 1, cleared=True)], [message(9, 7, cleared=True)]], {7})


async def test_another_process_under_the_address_is_not_believed() -> None:
    def check(follower: KvFollower, rig: Rig) -> None:
        assert rig.pool.index.num_blocks == 0

    await play([[message(1, 1, cleared=True, incarnation=9)], [message(1, cleared=True)]], set(), check)


async def test_replicas_that_go_are_forgotten() -> None:
    def check(follower: KvFollower, rig: Rig) -> None:
        nobody: list[ReplicaRecord] = []
        follower.update(nobody)
        assert len(rig.pool.table) == 0
        assert rig.pool.index.num_blocks == 0
        assert not follower._tasks

    await play([[message(1, 1, cleared=True)]], {1}, check)


class Broken:
    """A stream whose reads raise."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def read(self) -> Any:
        raise self._error

    def cancel(self) -> None:
        pass


ERRORS = [
    asyncio.CancelledError(),
    grpc.aio.UsageError("Channel is closed."),
    asyncio.InvalidStateError(),
    OSError("gone"),
    TimeoutError(),
    ZeroDivisionError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("opening", [False, True], ids=["reading", "opening"])
async def test_whatever_a_stream_raises_another_one_is_opened(error: BaseException, opening: bool) -> None:
    opened = 0

    def open_stream(one: ReplicaRecord, request: pb.KvEventsRequest) -> Any:
        nonlocal opened
        opened += 1
        if opening:
            raise error
        return Broken(error)

    follower = KvFollower(Rig(()).pool, open_stream)
    follower.update([record("a")])
    (task,) = follower._tasks.values()
    await _until(lambda: opened > 1 or task.done())
    assert not task.done()
    await asyncio.wait_for(follower.close(), 60)
    assert task.cancelled(), "a cancellation of our own ends it"


async def test_a_task_that_was_ended_by_others_is_replaced() -> None:
    first = [message(1, 1, cleared=True)]
    service, rig = Scripted([first, first, []]), Rig(())
    service.all_stay_open = True
    async with follow(service, rig) as follower:
        await _until(lambda: rig.pool.index.num_blocks == 1)
        (task,) = follower._tasks.values()
        members: Any = follower._members
        task.cancel()
        await asyncio.wait({task})
        follower.update(members)  # the very same object
        await _until(lambda: service.asked == [(1, 0)] * 2)


async def test_who_has_no_events_is_asked_once() -> None:
    class Silent(verifier_pb2_grpc.VerifierServiceServicer):
        calls = 0

        async def KvEvents(
            self, request: pb.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[pb.KvEventsResponse]:
            self.calls += 1
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no events here")
            yield pb.KvEventsResponse()

    service, rig = Silent(), Rig(())
    async with follow(service, rig) as follower:
        await _until(lambda: all(task.done() for task in follower._tasks.values()))
        follower.update([record("a")])
        assert all(task.done() for task in follower._tasks.values())
    assert service.calls == 1
