"""Keeps a `RoutingPool` up to date: one stream of KV events for each live replica.

A stream that breaks is opened again, and asks for what came after the last message; a replica that does not know that
any more sends a snapshot. A message that does not follow the one before it ends the stream, for the same reason.

A replica is followed until it is listed no more, whatever happens to its streams in between: hints that stand still
would mislead every later choice, and nobody would notice.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TypeAlias

import grpc
from outrider.v1 import verifier_pb2 as pb

from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.pool import RoutingPool
from cluster.router.replica_table import ReplicaKey, key_of

__all__ = ["KvFollower", "OpenStream"]

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1  # before a broken stream is opened again; doubles while that fails
MAX_PAUSE_S = 5.0
SILENCE_S = 10.0  # replicas report their load twice a second: one that is silent for so long is asked again

KvStream: TypeAlias = "grpc.aio.UnaryStreamCall[pb.KvEventsRequest, pb.KvEventsResponse]"
OpenStream = Callable[[ReplicaRecord, pb.KvEventsRequest], KvStream]


class KvFollower:
    """Belongs to one event loop."""

    def __init__(self, pool: RoutingPool, open_stream: OpenStream) -> None:
        self._pool = pool
        self._open_stream = open_stream
        self._members: object = None
        self._tasks: dict[ReplicaKey, asyncio.Task[None]] = {}

    def update(self, records: Iterable[ReplicaRecord]) -> None:
        """Follow exactly these replicas. Cheap when it is called again with the same object."""
        if records is self._members:
            return
        self._members, live = records, {key_of(record): record for record in records}
        self._pool.update_members(live.values())
        for key in [key for key in self._tasks if key not in live]:
            self._tasks.pop(key).cancel()
        for key, record in live.items():
            if key not in self._tasks:
                task = asyncio.create_task(self._follow(record), name=f"kv-events {record.replica_id}")
                task.add_done_callback(partial(self._ended, key))
                self._tasks[key] = task

    async def close(self) -> None:
        """Follow none any more."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: ReplicaKey, task: "asyncio.Task[None]") -> None:
        """A task that neither returned nor was ended by us is replaced at the next `update`."""
        if self._tasks.get(key) is task and (task.cancelled() or task.exception() is not None):
            del self._tasks[key]
            self._members = None

    async def _follow(self, record: ReplicaRecord) -> None:
        position, pause_s = 0, FIRST_PAUSE_S
        while True:
            reason = "end"
            try:
                async with aclosing(self._positions(record, position)) as positions:
                    async for number in positions:
                        position, pause_s = number, FIRST_PAUSE_S
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # allowed: what we send there ourselves is known
                    return
                reason = error.code().name
            except asyncio.CancelledError:  # also raised when the call is cancelled, by closing its channel
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                reason = "its channel was closed"
            except (grpc.aio.UsageError, asyncio.InvalidStateError, OSError) as error:  # TimeoutError is an OSError
                reason = str(error) or type(error).__name__
            except Exception:
                logger.exception("KV events of %s cannot be taken", record.replica_id)
                reason = "error"
            logger.info("KV events of %s broke off (%s)", record.replica_id, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _positions(self, record: ReplicaRecord, position: int) -> AsyncGenerator[int, None]:
        """The number of each message of one stream, once it is in the books; ends with the stream."""
        request = pb.KvEventsRequest(incarnation=record.incarnation, after_sequence_number=position)
        stream = self._open_stream(record, request)
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):  # not wait_for, which may lose a cancellation
                    message = await stream.read()
                if not isinstance(message, pb.KvEventsResponse) or not self._take(record, message, position):
                    return
                position = message.sequence_number
                yield position
        finally:
            stream.cancel()  # no effect on one that has ended

    def _take(self, record: ReplicaRecord, message: pb.KvEventsResponse, position: int) -> bool:
        """False when the message does not follow `position`, or is another process's."""
        if message.incarnation != record.incarnation:
            logger.warning("KV events of %s come from another incarnation", record.replica_id)
            return False
        if not message.cleared and message.previous_sequence_number != position:
            logger.warning("KV events of %s have a gap after number %d", record.replica_id, position)
            return False
        key = key_of(record)
        self._pool.apply(
            key, cleared=message.cleared, stored=message.stored_block_hashes, removed=message.removed_block_hashes
        )
        self._pool.report(key, ReplicaLoad.from_wire(message.load))
        return True
