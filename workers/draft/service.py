"""The drafter's gRPC service: sessions of many verifiers in, token trees out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import draft_pb2_grpc, verifier_pb2

from workers.core.errors import ProtocolViolationError, UnavailableError
from workers.draft.engine import DraftEngine
from workers.draft.messages import FrameIn, FrameOut
from workers.draft.outbox import Outbox, StreamHub
from workers.draft.wire import frame_from_wire, frame_to_wire
from workers.kvcache.events import KvEventLog
from workers.rpc.handshake import DrafterIdentity, VerifierIdentity, check_hello, hello_from_wire, welcome_to_wire
from workers.rpc.kv_events import kv_events_to_wire

__all__ = ["DraftService"]

LOAD_REPORT_S = 0.5  # KvEvents subscribers hear of the load at least this often
HELLO_TIMEOUT_S = 10.0
MAX_BACKLOG = 256  # frames that wait for the engine; beyond it streams are not read, and gRPC holds the sender back
BACKLOG_POLL_S = 0.002

Frames = AsyncIterator[pb.VerifierFrame]


class DraftService(draft_pb2_grpc.DraftServiceServicer):
    """Serves `Speculate` and `KvEvents` for one engine."""

    def __init__(self, engine: DraftEngine, hub: StreamHub, identity: DrafterIdentity, events: KvEventLog) -> None:
        self._engine = engine
        self._hub = hub
        self._identity = identity
        self._events = events
        self.draining = False

    async def Speculate(
        self, request_iterator: Frames, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.DrafterFrame]:
        """One verifier's stream. However it ends, all its sessions are freed at once."""
        first, verifier = await self._greet(request_iterator)
        if self.draining:  # only now: gRPC loses the status of a stream that ends before its first frame was read
            raise UnavailableError("this drafter is shutting down; try another")
        number, outbox = self._hub.open()
        # Not in a `finally`: a call that is cancelled while gRPC writes never enters this generator again.
        context.add_done_callback(lambda _: self._end(number))  # type: ignore[arg-type]  # no function fits the stubs
        yield pb.DrafterFrame(welcome=welcome_to_wire(self._identity))
        reader = asyncio.create_task(self._read(first, request_iterator, number, verifier, outbox))
        context.add_done_callback(lambda _: reader.cancel())  # type: ignore[arg-type]  # as above
        while (frame := await outbox.take()) is not None:
            yield frame_to_wire(frame)

    async def KvEvents(
        self, request: verifier_pb2.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.KvEventsResponse]:
        """A snapshot of the prefix cache or what came after the given number, then changes; with them, the load."""
        with self._events.subscribe(request.incarnation, request.after_sequence_number) as subscription:
            while (batch := await subscription.receive(LOAD_REPORT_S)) is not None:
                yield kv_events_to_wire(batch, self._load())

    def _end(self, number: int) -> None:
        self._hub.close(number)
        self._engine.submit(FrameIn(number, 0, end=True))

    async def _greet(self, frames: Frames) -> tuple[pb.VerifierFrame, VerifierIdentity]:
        """The first frame; raises `IncompatibleError` or `ProtocolViolationError` when it is not a fitting hello."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await anext(frames, None)
        except TimeoutError:
            raise ProtocolViolationError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        if first is None or not first.HasField("hello"):
            raise ProtocolViolationError("the first frame of a stream must carry a hello")
        verifier = hello_from_wire(first.hello)
        check_hello(self._identity, verifier)
        return first, verifier

    async def _read(
        self, first: pb.VerifierFrame, frames: Frames, number: int, verifier: VerifierIdentity, outbox: Outbox
    ) -> None:
        """Pass frames on to the engine until the verifier ends its side."""
        try:
            self._pass_on(first, number, verifier, outbox)
            async for frame in frames:
                self._pass_on(frame, number, verifier, outbox)
                while self._engine.backlog > MAX_BACKLOG:
                    await asyncio.sleep(BACKLOG_POLL_S)
        finally:
            outbox.end()

    def _pass_on(self, frame: pb.VerifierFrame, number: int, verifier: VerifierIdentity, outbox: Outbox) -> None:
        readable, failures = frame_from_wire(frame, stream=number, target_vocab_size=verifier.vocab_size)
        self._engine.submit(readable)
        if failures:
            outbox.put(FrameOut(failures=failures))

    def _load(self) -> verifier_pb2.ReplicaLoad:
        return verifier_pb2.ReplicaLoad(
            running_requests=self._engine.num_sessions,
            waiting_requests=self._engine.backlog,
            total_kv_blocks=self._engine.manager.num_blocks,
            free_kv_blocks=self._engine.manager.num_free_blocks,
            waiting_tokens=self._engine.num_waiting_tokens,
            prefill_tokens_per_s=self._engine.prefill_tokens_per_s,
            max_running_requests=self._identity.max_sessions,
            response_ms=self._engine.response_ms,
        )
