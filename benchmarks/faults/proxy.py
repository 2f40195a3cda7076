"""A TCP proxy that can be told to cut, to lose, to hold and to slow down what passes through it."""

import asyncio
import random
from collections.abc import Sequence
from itertools import count

from benchmarks.faults.connection import Connection, Direction, Flow, Shape, Valve, reset

__all__ = ["FaultProxy"]

CONNECT_TIMEOUT_S = 5.0


class FaultProxy:
    """Listens on `host`, connects on to `upstreams` in turn. Belongs to one event loop; `threaded` has one for others.

    Faults last until `heal`, but for `cut`, which happens once.
    """

    def __init__(self, upstreams: Sequence[str], *, rng: random.Random | None = None, host: str = "127.0.0.1") -> None:
        """`upstreams`: host:port each; a connection goes to the next one that accepts it."""
        if not upstreams:
            raise ValueError("upstreams: at least one host:port is needed")
        self.upstreams = list(upstreams)
        self._rng = rng or random.Random(0)
        self._host = host
        self._turn = count()
        self._valves = {direction: Valve() for direction in Direction}
        self._refusing = False
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""
        self.accepted = 0

    async def start(self, port: int = 0) -> str:
        """Listen; returns host:port."""
        self._server = await asyncio.start_server(self._accept, self._host, port)
        self.address = f"{self._host}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def close(self) -> None:
        """Reset what is open and stop listening."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def bytes_passed(self, direction: Direction) -> int:
        return self._valves[direction].bytes_passed

    def bytes_lost(self, direction: Direction) -> int:
        return self._valves[direction].bytes_lost

    # Faults

    def cut(self) -> int:
        """Reset all open connections, once; how many there were. New ones are served."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def refuse(self) -> None:
        """Reset all connections, the open ones and every new one."""
        self._refusing = True
        self.cut()

    def black_hole(self) -> None:
        """Accept connections and bytes, and lose all of them, in both directions."""
        for valve in self._valves.values():
            valve.set(Flow.SWALLOW)

    def half_open(self, lost: Direction) -> None:
        """Lose what goes into one direction; the other one works."""
        self._valves[lost].set(Flow.SWALLOW)

    def hold(self) -> None:
        """Pass nothing on until `heal`; then everything arrives, as behind a long route change."""
        for valve in self._valves.values():
            valve.set(Flow.HOLD)

    def slow(self, shape: Shape) -> None:
        """Latency, jitter and bandwidth of both directions."""
        for valve in self._valves.values():
            valve.shape = shape

    def heal(self) -> None:
        """All faults are over. Connections that have lost bytes are reset: nothing could mend them."""
        self._refusing = False
        self.slow(Shape())
        for valve in self._valves.values():
            valve.set(Flow.PASS)
        for connection in [one for one in self._connections if one.lost_bytes]:
            connection.abort()

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this as a task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        server = None if self._refusing else await self._connect()
        if server is None or self._refusing:
            reset(writer)
            if server is not None:
                reset(server[1])
            return
        connection = Connection((reader, writer), server, self._valves, self._rng.random)
        self._connections.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:  # `close`; not an error of the task, which asyncio would report
            connection.abort()
        finally:
            self._connections.discard(connection)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """To the next upstream that accepts; None when none does."""
        first = next(self._turn)
        for offset in range(len(self.upstreams)):
            host, port = self.upstreams[(first + offset) % len(self.upstreams)].rsplit(":", 1)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(host, int(port))
            except (OSError, TimeoutError):
                continue
        return None
