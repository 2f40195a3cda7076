"""Open connections to replicas, one for each address."""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import grpc

from workers.rpc.channels import RpcOptions, open_channel

__all__ = ["Channels"]


class Channels:
    """Belongs to one event loop."""

    def __init__(self, options: RpcOptions | None = None) -> None:
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._streams: Counter[str] = Counter()

    def to(self, address: str) -> grpc.aio.Channel:
        """The connection to host:port, opened when there is none."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, self._options)
        return channel

    @contextmanager
    def in_use(self, address: str) -> Iterator[None]:
        """Keep the connection as long as this lasts."""
        self._streams[address] += 1
        try:
            yield
        finally:
            self._streams[address] -= 1
            if not self._streams[address]:
                del self._streams[address]

    async def keep(self, addresses: Collection[str]) -> None:
        """Close connections to all other addresses that are not in use; a replica that drains may still send to us."""
        for address in [one for one in self._channels if one not in addresses and one not in self._streams]:
            await self._channels.pop(address).close(None)

    async def close(self) -> None:
        """Close all, which ends what still runs on them."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)
