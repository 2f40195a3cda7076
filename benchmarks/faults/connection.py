"""One proxied connection: two directions, each a delay line that can be held or emptied into nothing."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Connection", "Direction", "Flow", "Shape", "Valve", "reset"]

CHUNK = 65_536
MAX_CHUNKS_UNDER_WAY = 256  # beyond it nothing more is read: the sender is held back, as on a full link


class Direction(Enum):
    UP = "from the client to the server"
    DOWN = "from the server to the client"


class Flow(Enum):
    PASS = "arrives"  # noqa: S105 - no password
    HOLD = "arrives when the flow is PASS again"
    SWALLOW = "is lost"


@dataclass(frozen=True)
class Shape:
    """How slow a direction is. Order is kept: TCP would do so."""

    latency_s: float = 0.0
    jitter_s: float = 0.0  # up to this much more, drawn for each chunk
    bytes_per_s: float | None = None  # None = no limit

    def __post_init__(self) -> None:
        if self.latency_s < 0 or self.jitter_s < 0:
            raise ValueError(f"latency_s and jitter_s must not be negative, got {self.latency_s}, {self.jitter_s}")
        if self.bytes_per_s is not None and self.bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be above 0, got {self.bytes_per_s}")


@dataclass
class Valve:
    """State of one direction, shared by all connections of a proxy."""

    flow: Flow = Flow.PASS
    shape: Shape = Shape()
    bytes_passed: int = 0
    bytes_lost: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, flow: Flow) -> None:
        self.flow = flow
        self.changed.set()
        self.changed = asyncio.Event()

    async def not_held(self) -> Flow:
        while self.flow is Flow.HOLD:
            await self.changed.wait()
        return self.flow


@dataclass(eq=False)
class Connection:
    """Carries bytes until both sides have ended, or one of them broke, or `abort`."""

    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    valves: dict[Direction, Valve]
    jitter: Callable[[], float]  # in [0, 1)
    lost_bytes: bool = False  # its streams have a hole: it cannot go on

    async def run(self) -> None:
        up, down = (asyncio.Queue[tuple[float, bytes]](MAX_CHUNKS_UNDER_WAY) for _ in range(2))
        loops = [
            self._read(self.client[0], self.valves[Direction.UP], up),
            self._write(self.server[1], self.valves[Direction.UP], up),
            self._read(self.server[0], self.valves[Direction.DOWN], down),
            self._write(self.client[1], self.valves[Direction.DOWN], down),
        ]
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            await asyncio.gather(*tasks)
        except OSError:
            pass  # one side broke: so does the other
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.abort()

    def abort(self) -> None:
        """Reset both sides."""
        for _, writer in (self.client, self.server):
            reset(writer)

    async def _read(
        self, reader: asyncio.StreamReader, valve: Valve, line: "asyncio.Queue[tuple[float, bytes]]"
    ) -> None:
        """Into the delay line, each chunk with the time at which it is due; an empty one is the end."""
        loop, due = asyncio.get_running_loop(), 0.0
        while True:
            data = await reader.read(CHUNK)
            shape = valve.shape
            due = max(due, loop.time() + shape.latency_s + shape.jitter_s * self.jitter())
            if shape.bytes_per_s is not None:
                due += len(data) / shape.bytes_per_s
            await line.put((due, data))
            if not data:
                return

    async def _write(
        self, writer: asyncio.StreamWriter, valve: Valve, line: "asyncio.Queue[tuple[float, bytes]]"
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await line.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if await valve.not_held() is Flow.SWALLOW:
                self.lost_bytes = True
                valve.bytes_lost += len(data)
                if not data:
                    return
                continue
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            valve.bytes_passed += len(data)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset, as a process that was killed or a firewall does."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):  # closed already
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
