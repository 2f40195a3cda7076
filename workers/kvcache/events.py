"""KV events: what the prefix cache gained and lost, for subscribers in other processes.

The engine's thread publishes; each subscriber consumes in its asyncio loop. Changes that a subscriber has not yet
fetched are merged, so that its backlog is bounded by the cache itself; past `max_backlog` the backlog is dropped and
a fresh snapshot takes its place. A new subscriber starts in that very state.
"""

import asyncio
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

__all__ = ["ChangeSet", "KvCacheEvents", "KvEventBatch", "KvEventLog", "KvEventSubscription"]

DEFAULT_MAX_BACKLOG = 65_536


@dataclass(frozen=True)
class KvCacheEvents:
    """Net change of the set of matchable blocks. Apply `cleared` first; `stored` and `removed` never overlap."""

    stored: tuple[int, ...] = ()  # 64-bit block hashes
    removed: tuple[int, ...] = ()
    cleared: bool = False

    def __bool__(self) -> bool:
        return bool(self.cleared or self.stored or self.removed)


@dataclass(frozen=True)
class KvEventBatch:
    """One message to a subscriber. Sequence numbers of a subscription are 0, 1, 2, … without gaps."""

    incarnation: int
    sequence_number: int
    events: KvCacheEvents


class ChangeSet:
    """Collects changes and cancels opposite ones: order within one `KvCacheEvents` does not matter."""

    def __init__(self) -> None:
        self._stored: dict[int, None] = {}  # dicts for their stable order
        self._removed: dict[int, None] = {}
        self._cleared = False

    def __len__(self) -> int:
        return len(self._stored) + len(self._removed)

    def store(self, block_hash: int) -> None:
        if block_hash in self._removed:
            del self._removed[block_hash]
        else:
            self._stored[block_hash] = None

    def remove(self, block_hash: int) -> None:
        if block_hash in self._stored:
            del self._stored[block_hash]
        else:
            self._removed[block_hash] = None

    def clear(self) -> None:
        self._stored.clear()
        self._removed.clear()
        self._cleared = True

    def merge(self, events: KvCacheEvents) -> None:
        if events.cleared:
            self.clear()
        for block_hash in events.removed:
            self.remove(block_hash)
        for block_hash in events.stored:
            self.store(block_hash)

    def take(self) -> KvCacheEvents:
        """Everything since the last call."""
        events = KvCacheEvents(tuple(self._stored), tuple(self._removed), self._cleared)
        self._stored.clear()
        self._removed.clear()
        self._cleared = False
        return events


class KvEventLog:
    """The matchable blocks of one cache, and its subscribers. All methods may be called from any thread."""

    def __init__(self, incarnation: int, *, max_backlog: int = DEFAULT_MAX_BACKLOG) -> None:
        if max_backlog < 1:
            raise ValueError(f"max_backlog must be at least 1, not {max_backlog}")
        self.incarnation = incarnation
        self.max_backlog = max_backlog
        self._lock = threading.Lock()
        self._blocks: dict[int, None] = {}
        self._subscriptions: set[KvEventSubscription] = set()
        self._closed = False

    @property
    def num_subscribers(self) -> int:
        return len(self._subscriptions)

    def publish(self, events: KvCacheEvents) -> None:
        """Tell all subscribers; never blocks on them. Empty events are not sent."""
        if not events:
            return
        with self._lock:
            if events.cleared:
                self._blocks.clear()
            for block_hash in events.removed:
                self._blocks.pop(block_hash, None)
            self._blocks.update(dict.fromkeys(events.stored))
            self._notify(events)

    def subscribe(self) -> "KvEventSubscription":
        """A subscription for the running asyncio loop; leave its `with` block (or `close` it) to end it."""
        subscription = KvEventSubscription(self, asyncio.get_running_loop())
        with self._lock:
            if self._closed:
                subscription._closed = True
            else:
                self._subscriptions.add(subscription)
        return subscription

    def close(self) -> None:
        """End all subscriptions, once each has fetched what is left."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription._closed = True
            self._notify(KvCacheEvents())
            self._subscriptions.clear()

    def _notify(self, events: KvCacheEvents) -> None:
        dead = [s for s in self._subscriptions if not s._offer(events)]
        self._subscriptions.difference_update(dead)

    def _snapshot(self) -> KvCacheEvents:
        return KvCacheEvents(stored=tuple(self._blocks), cleared=True)

    def _forget(self, subscription: "KvEventSubscription") -> None:
        with self._lock:
            subscription._closed = True
            subscription._backlog = ChangeSet()
            self._subscriptions.discard(subscription)


class KvEventSubscription:
    """One subscriber: an async iterator for one task. Cancelling a wait loses nothing."""

    def __init__(self, log: KvEventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._loop = loop
        self._wake = asyncio.Event()
        self._backlog: ChangeSet | None = None  # None = a snapshot is due
        self._closed = False
        self._next_number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop receiving: a waiting `receive` returns None. To be called in the subscriber's loop."""
        self._log._forget(self)
        self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KvEventBatch:
        batch = await self.receive()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def receive(self, timeout_s: float | None = None) -> KvEventBatch | None:
        """The next batch; an empty one when `timeout_s` passes without a change; None at the end."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._wake.clear()  # before looking: a change after the look sets it again
                    events = self._take()
                    if events:
                        return self._numbered(events)
                    if self._closed:
                        return None
                    await self._wake.wait()
        except TimeoutError:
            return self._numbered(KvCacheEvents())

    def _numbered(self, events: KvCacheEvents) -> KvEventBatch:
        batch = KvEventBatch(self._log.incarnation, self._next_number, events)
        self._next_number += 1
        return batch

    def _take(self) -> KvCacheEvents:
        with self._log._lock:
            if self._backlog is None:
                self._backlog = ChangeSet()
                return self._log._snapshot()
            return self._backlog.take()

    def _offer(self, events: KvCacheEvents) -> bool:
        """Add to the backlog and wake the consumer; the log's lock is held. False when its loop is gone."""
        if self._backlog is not None:
            self._backlog.merge(events)
            if len(self._backlog) > self._log.max_backlog:
                self._backlog = None
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:  # the loop is closed, nobody can be waiting
            return False
        return True
