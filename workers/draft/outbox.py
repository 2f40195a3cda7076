"""From the engine's thread to the streams: what each still has to send. Bounded, whatever the reader does."""

import asyncio
from contextlib import suppress
from itertools import count

from workers.core.errors import OutriderError
from workers.draft.messages import FrameOut, SessionFailure, SessionProposal

__all__ = ["Outbox", "StreamHub"]

MAX_FAILURES = 1024


class Outbox:
    """Of one stream; lives in the event loop's thread. A session's newer proposal replaces the unsent older one."""

    def __init__(self) -> None:
        self._proposals: dict[int, SessionProposal] = {}
        self._failures: list[SessionFailure] = []
        self._ended = False
        self._error: OutriderError | None = None
        self._wake = asyncio.Event()
        self.num_dropped = 0  # proposals replaced and failures beyond the bound

    def put(self, frame: FrameOut) -> None:
        for sent in frame.proposals:
            self.num_dropped += sent.session_id in self._proposals
            self._proposals[sent.session_id] = sent
        for failure in frame.failures:
            self._proposals.pop(failure.session_id, None)
        self._failures.extend(frame.failures)
        excess = max(0, len(self._failures) - MAX_FAILURES)
        self.num_dropped += excess
        del self._failures[:excess]
        self._wake.set()

    def end(self, error: OutriderError | None = None) -> None:
        """No more to come: `take` raises `error`, or returns None."""
        self._ended, self._error = True, error
        self._wake.set()

    async def take(self) -> FrameOut | None:
        """Everything unsent, once there is something; None at the end."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._ended:
                self._wake.set()
                if self._error is not None:
                    raise self._error
                return None
            if self._proposals or self._failures:
                frame = FrameOut(list(self._proposals.values()), self._failures)
                self._proposals, self._failures = {}, []
                return frame


class StreamHub:
    """All open streams. `deliver` and `fail` may be called from any thread, the rest from the event loop's."""

    def __init__(self) -> None:
        self._outboxes: dict[int, tuple[Outbox, asyncio.AbstractEventLoop]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._outboxes)

    def open(self) -> tuple[int, Outbox]:
        """A new stream's number and outbox."""
        number, outbox = next(self._numbers), Outbox()
        self._outboxes[number] = (outbox, asyncio.get_running_loop())
        return number, outbox

    def close(self, number: int) -> None:
        self._outboxes.pop(number, None)

    def deliver(self, number: int, frame: FrameOut) -> None:
        """Hand a frame to a stream; dropped when the stream is gone."""
        if (entry := self._outboxes.get(number)) is not None:
            outbox, loop = entry
            with suppress(RuntimeError):  # the loop is closed: nobody is left to read
                loop.call_soon_threadsafe(outbox.put, frame)

    def fail(self, error: OutriderError) -> None:
        """End all streams with `error`."""
        for outbox, loop in list(self._outboxes.values()):
            with suppress(RuntimeError):  # as above
                loop.call_soon_threadsafe(outbox.end, error)
