"""Channels to one target: their options, and a small pool that grows with the load."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from outrider.checks import shown
from outrider.errors import CancelledError, ConfigurationError

__all__ = ["DEFAULT_MAX_MESSAGE_BYTES", "STREAMS_PER_CONNECTION", "ChannelPool", "channel_options", "metadata_pairs"]

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# HAProxy (Ray Serve's ingress) allows 100 concurrent streams on a connection; the 101st would wait unseen in gRPC.
STREAMS_PER_CONNECTION = 100
# Servers may answer pings on a silent stream with GOAWAY (too_many_pings) when they come more often than every five
# minutes, their default minimum; that would cut a request that waits in a queue.
KEEPALIVE_TIME_MS = 320_000
KEEPALIVE_TIMEOUT_MS = 20_000
_METADATA_KEY = re.compile(r"[0-9a-z_.-]+")

ChannelT = TypeVar("ChannelT")
StubT = TypeVar("StubT")


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """gRPC options of one channel; raises `ConfigurationError` when the settings cannot work."""
    if not isinstance(max_message_bytes, int) or not 1024 <= max_message_bytes < 2**31:
        raise ConfigurationError(f"max_message_bytes must be from 1024 to {2**31 - 1}, got {shown(max_message_bytes)}")
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # gRPC would back off up to two minutes and hide a server that is back.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Without it, channels to one target would share one connection.
        ("grpc.use_local_subchannel_pool", 1),
        # Retrying is outrider.retry's, which knows how to resume.
        ("grpc.enable_retries", 0),
    ]


def metadata_pairs(metadata: Mapping[str, str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Headers of every call, keys in lower case as gRPC wants them."""
    pairs = metadata.items() if isinstance(metadata, Mapping) else metadata
    for key, value in pairs:
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigurationError(
                f"metadata: keys and values must be texts, got {shown(key)}: {type(value).__name__}"
            )
        if not _METADATA_KEY.fullmatch(key.lower()):
            raise ConfigurationError(f"metadata: a key is made of a-z, 0-9, '-', '_' and '.', got {shown(key)}")
        if not (value.isascii() and value.isprintable()):  # the value is not repeated: it may be a secret
            raise ConfigurationError(f"metadata: the value of {shown(key)} must be printable ASCII")
    return tuple((key.lower(), value) for key, value in pairs)


@dataclass
class _Connection(Generic[ChannelT, StubT]):
    channel: ChannelT
    stub: StubT
    calls: int = 0
    retired: bool = False


class ChannelPool(Generic[ChannelT, StubT]):
    """Hands out the least busy connection; opens another when all are full, up to `max_connections`.

    Connections open on first use, so that an async client may be built outside its event loop. Thread-safe.
    """

    def __init__(
        self,
        open_channel: Callable[[], ChannelT],
        make_stub: Callable[[ChannelT], StubT],
        *,
        max_connections: int,
        discard: Callable[[ChannelT], object],
        streams_per_connection: int = STREAMS_PER_CONNECTION,
    ) -> None:
        """`discard` closes a channel that was retired, once its last call has ended."""
        if not isinstance(max_connections, int) or max_connections < 1:
            raise ConfigurationError(f"max_connections must be at least 1, got {shown(max_connections)}")
        self._open_channel = open_channel
        self._make_stub = make_stub
        self._discard = discard
        self._max_connections = max_connections
        self._streams_per_connection = streams_per_connection
        self._connections: list[_Connection[ChannelT, StubT]] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def lease(self) -> Iterator[StubT]:
        """A stub for one call; raises `CancelledError` once the pool is closed."""
        with self._lock:
            connection = self._pick()
            connection.calls += 1
        try:
            yield connection.stub
        except ValueError:  # gRPC's answer to a call on a channel that another thread has just closed
            self.check_open()
            raise
        finally:
            with self._lock:
                connection.calls -= 1
                unused = connection.retired and not connection.calls and connection in self._connections
                if unused:
                    self._connections.remove(connection)
            if unused:
                self._discard(connection.channel)

    def retire(self, stub: StubT) -> None:
        """Start no more calls on the connection of a stub that was leased: nothing comes back on it."""
        with self._lock:
            for connection in self._connections:
                connection.retired = connection.retired or connection.stub is stub

    def check_open(self) -> None:
        if self._closed:
            raise CancelledError("the client is closed")

    def close(self) -> list[ChannelT]:
        """Take the pool out of use; returns the channels, for the caller to close."""
        with self._lock:
            self._closed = True
            channels = [connection.channel for connection in self._connections]
            self._connections.clear()
        return channels

    def _pick(self) -> _Connection[ChannelT, StubT]:
        self.check_open()
        usable = [connection for connection in self._connections if not connection.retired]
        best = min(usable, key=lambda connection: connection.calls, default=None)
        full = best is None or best.calls >= self._streams_per_connection
        if best is None or (full and len(usable) < self._max_connections):
            channel = self._open_channel()
            best = _Connection(channel, self._make_stub(channel))
            self._connections.append(best)
        return best
