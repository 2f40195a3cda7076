"""The stream to one drafter: connect, greet, read, write, connect again.

Runs in the event loop's thread and knows nothing of requests. Each stream has
a generation; frames for another generation than the current one are dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import draft_pb2_grpc

from workers.core.errors import (
    AuthenticationError,
    IncompatibleError,
    InvalidRequestError,
    OutriderError,
    ProtocolViolationError,
    UnavailableError,
)
from workers.core.private_log import log_failure
from workers.proposers.inbox import Inbox, LinkDown, LinkUp
from workers.rpc.channels import RpcOptions, open_channel
from workers.rpc.errors import from_rpc_error, from_status
from workers.rpc.handshake import VerifierIdentity, check_welcome, hello_to_wire, welcome_from_wire

__all__ = ["DraftLink", "LinkOptions"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinkOptions:
    """Timings and bounds of a link."""

    handshake_timeout_s: float = 5.0  # connecting included
    min_backoff_s: float = 0.05
    max_backoff_s: float = 2.0
    barred_s: float = 60.0  # before a drafter that does not fit is tried again
    max_unsent_frames: int = 64  # beyond it the drafter does not read, and the stream is given up
    rpc: RpcOptions = field(default_factory=lambda: RpcOptions(own_connection=True))


class DraftLink:
    """Keeps one stream to `address` alive until it is cancelled (`run` is a task of the loop)."""

    def __init__(
        self,
        address: str,
        verifier: VerifierIdentity,
        inbox: Inbox,
        clock: Callable[[], float],
        options: LinkOptions,
    ) -> None:
        self.address = address
        self._verifier = verifier
        self._inbox = inbox
        self._clock = clock
        self._options = options
        self._generation = 0
        self._unsent: asyncio.Queue[pb.VerifierFrame] = asyncio.Queue()
        self._failed: asyncio.Future[None] | None = None  # of the current stream; its exception ends it
        self._backoff_s = options.min_backoff_s

    def enqueue(self, generation: int, frame: pb.VerifierFrame) -> None:
        """Send `frame` on stream `generation`, if that is still the one (loop's thread)."""
        if generation != self._generation or self._failed is None or self._failed.done():
            return
        if self._unsent.qsize() >= self._options.max_unsent_frames:
            self._failed.set_exception(UnavailableError(f"{self._unsent.qsize()} frames are unsent: it does not read"))
            return
        self._unsent.put_nowait(frame)

    async def run(self) -> None:
        """Open stream after stream, with growing pauses, and report each as `LinkUp` and `LinkDown`."""
        while True:
            self._generation += 1
            try:
                await self._stream()
                down = self._down("it ended the stream")
            except grpc.aio.AioRpcError as error:
                down = self._down_by(from_rpc_error(error))
            except TimeoutError:
                down = self._down(f"no welcome within {self._options.handshake_timeout_s} s")
            except OutriderError as error:
                down = self._down_by(error)
            except asyncio.CancelledError:
                if _being_cancelled():
                    raise
                down = self._down("the connection broke")  # gRPC cancels a call that it cannot write to
            except Exception as error:  # noqa: BLE001 - a link that ended without a word would strand its sessions
                log_failure(_log, f"draft stream to {self.address} failed unexpectedly", error)
                down = self._down("an unexpected error")
            self._failed = None
            self._inbox.post(down)
            if down.barred:
                await asyncio.sleep(self._options.barred_s)
                continue
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, self._options.max_backoff_s)

    def _down(self, reason: str) -> LinkDown:
        _log.info("draft stream to %s is down: %s", self.address, reason)
        return LinkDown(self, self.address, self._generation, reason, barred=False)

    def _down_by(self, error: OutriderError) -> LinkDown:
        incompatible = isinstance(error, IncompatibleError)
        if incompatible or isinstance(error, (AuthenticationError, ProtocolViolationError, InvalidRequestError)):
            _log.error("drafter %s is not used for %g s: %s", self.address, self._options.barred_s, error)
            return LinkDown(self, self.address, self._generation, str(error), barred=True, incompatible=incompatible)
        return self._down(str(error))

    async def _stream(self) -> None:
        """One stream from greeting to end; raises what ended it."""
        async with open_channel(self.address, self._options.rpc) as channel:
            call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]  # read and write
            try:
                await self._greet(call)
                await self._carry(call)
            finally:
                call.cancel()

    async def _greet(self, call: Any) -> None:
        async with asyncio.timeout(self._options.handshake_timeout_s):
            await _write(call, pb.VerifierFrame(hello=hello_to_wire(self._verifier)))
            frame = await call.read()
        if frame is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise UnavailableError("it ended the stream instead of a welcome")
        if not frame.HasField("welcome"):
            raise ProtocolViolationError("its first frame has no welcome")
        drafter = welcome_from_wire(frame.welcome)
        check_welcome(self._verifier, drafter)
        self._unsent = asyncio.Queue()
        self._failed = asyncio.get_running_loop().create_future()
        self._inbox.post(LinkUp(self, self.address, self._generation, drafter))

    async def _carry(self, call: Any) -> None:
        """Read and write side by side until one of them, or `enqueue`, ends the stream."""
        assert self._failed is not None  # noqa: S101 - set by _greet
        reader, writer = asyncio.create_task(self._read(call)), asyncio.create_task(self._write(call))
        try:
            done, _ = await asyncio.wait({reader, writer, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read(self, call: Any) -> None:
        while (frame := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            if not self._inbox.deliver(self, self.address, self._generation, self._clock(), frame):
                raise ProtocolViolationError("it floods the verifier with messages")
            self._backoff_s = self._options.min_backoff_s

    async def _write(self, call: Any) -> None:
        while True:
            await _write(call, await self._unsent.get())


async def _write(call: Any, frame: pb.VerifierFrame) -> None:
    """Write, or raise the status of a call that has ended already."""
    try:
        await call.write(frame)
    except asyncio.InvalidStateError:
        raise from_status(await call.code(), await call.details() or "the stream ended") from None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
