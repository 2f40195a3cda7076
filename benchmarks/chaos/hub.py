"""Puts a fault proxy in front of every engine replica: replicas register as they start, the benchmark pulls strings."""

import asyncio
import json
from typing import Any

from benchmarks.faults.threaded import ProxyThread, ThreadedProxy

__all__ = ["HUB_VARIABLE", "ProxyHub", "register"]

HUB_VARIABLE = "OUTRIDER_CHAOS_HUB"  # host:port, in the environment of replicas
TIMEOUT_S = 30.0


class ProxyHub:
    """Listens on the loopback interface. `by_role` is for the benchmark's thread."""

    def __init__(self, thread: ProxyThread) -> None:
        self._thread = thread
        self._by_replica: dict[str, tuple[str, ThreadedProxy]] = {}
        self._server, self.address = thread.call(self._listen())

    async def _listen(self) -> tuple[asyncio.Server, str]:
        server = await asyncio.start_server(self._register, "127.0.0.1", 0)
        return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _register(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said: dict[str, Any] = json.loads(await reader.readline())
        proxy = await self._thread.open_here(said["address"])
        self._by_replica[said["replica_id"]] = said["role"], proxy
        writer.write(proxy.address.encode() + b"\n")
        await writer.drain()
        writer.close()

    def by_role(self, role: str) -> list[ThreadedProxy]:
        """Proxies that carry connections at the moment."""
        return [proxy for kind, proxy in list(self._by_replica.values()) if kind == role and proxy.open_connections]

    def close(self) -> None:
        self._server.get_loop().call_soon_threadsafe(self._server.close)


async def register(hub: str, role: str, replica_id: str, address: str) -> str:
    """In a replica: the address under which others are to reach it."""
    host, port = hub.rsplit(":", 1)
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(json.dumps({"role": role, "replica_id": replica_id, "address": address}).encode() + b"\n")
        proxied = (await reader.readline()).decode().strip()
        writer.close()
    return proxied
