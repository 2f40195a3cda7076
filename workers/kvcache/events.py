"""KV events: what the prefix cache gained and lost, for subscribers in other processes.

The engine's thread publishes; each subscriber consumes in its asyncio loop. All share one bounded history of changes: a
subscriber that is further back than it reaches (also a new one) gets a snapshot, any other the net change since the
number that it has, also when it comes back after its stream broke.
"""

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

__all__ = ["ChangeSet", "KvCacheEvents", "KvEventBatch", "KvEventLog", "KvEventSubscription"]

DEFAULT_MAX_HISTORY = 65_536


@dataclass(frozen=True)
class KvCacheEvents:
    """Net change of the set of matchable blocks. Apply `cleared` first; `stored` and `removed` never overlap."""

    stored: tuple[int, ...] = ()  # 64-bit block hashes
    removed: tuple[int, ...] = ()
    cleared: bool = False

    def __bool__(self) -> bool:
        return bool(self.cleared or self.stored or self.removed)

    def __len__(self) -> int:
        return len(self.stored) + len(self.removed) + self.cleared


@dataclass(frozen=True)
class KvEventBatch:
    """One message to a subscriber: all changes after number `previous` up to `sequence_number`, or a snapshot.

    The log counts its changes 1, 2, 3, …; a batch without events says that there are none after `previous`.
    """

    incarnation: int
    previous: int
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
    """The matchable blocks of one cache, and its latest changes. All methods may be called from any thread."""

    def __init__(self, incarnation: int, *, max_history: int = DEFAULT_MAX_HISTORY) -> None:
        """`max_history`: block changes that are remembered at most."""
        if max_history < 1:
            raise ValueError(f"max_history must be at least 1, not {max_history}")
        self.incarnation = incarnation
        self._max_history = max_history
        self._lock = threading.Lock()
        self._blocks: dict[int, None] = {}
        self._number = 0  # of the latest change
        self._history: deque[KvCacheEvents] = deque()  # the latest changes, the last of them is number `_number`
        self._history_size = 0
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
            self._number += 1
            self._history.append(events)
            self._history_size += len(events)
            while self._history_size > self._max_history:
                self._history_size -= len(self._history.popleft())
            self._wake_all()

    def subscribe(self, incarnation: int = 0, after: int = 0) -> "KvEventSubscription":
        """A subscription for the running asyncio loop; leave its `with` block (or `close` it) to end it.

        `incarnation`, `after`: what the subscriber has already (of this log, or of one that is gone).
        """
        position = after if incarnation == self.incarnation and after > 0 else None
        subscription = KvEventSubscription(self, asyncio.get_running_loop(), position)
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
            self._wake_all()
            self._subscriptions.clear()

    def _wake_all(self) -> None:
        self._subscriptions = {one for one in self._subscriptions if one._notify()}

    def _since(self, position: int | None) -> KvEventBatch:
        """All after `position`; a snapshot for None, and where that is not remembered."""
        with self._lock:
            number = self._number
            missing = -1 if position is None else number - position
            if position is None or not 0 <= missing <= len(self._history):
                return KvEventBatch(self.incarnation, 0, number, KvCacheEvents(tuple(self._blocks), cleared=True))
            latest = list(islice(reversed(self._history), missing))
        changes = ChangeSet()
        for events in reversed(latest):
            changes.merge(events)
        return KvEventBatch(self.incarnation, position, number, changes.take())

    def _forget(self, subscription: "KvEventSubscription") -> None:
        with self._lock:
            self._subscriptions.discard(subscription)


class KvEventSubscription:
    """One subscriber: an async iterator for one task. Cancelling a wait loses nothing."""

    def __init__(self, log: KvEventLog, loop: asyncio.AbstractEventLoop, position: int | None) -> None:
        self._log = log
        self._loop = loop
        self._wake = asyncio.Event()
        self._position = position  # number of the latest change that it has; None = a snapshot is due
        self._closed = False  # the log is
        self._left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop receiving: a waiting `receive` returns None. To be called in the subscriber's loop."""
        self._log._forget(self)
        self._left = True
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
                    closed = self._closed
                    if self._left:
                        return None
                    if self._position != self._log._number:
                        return self._take()
                    if closed:
                        return None
                    await self._wake.wait()
        except TimeoutError:
            return self._take()

    def _take(self) -> KvEventBatch:
        batch = self._log._since(self._position)
        self._position = batch.sequence_number
        return batch

    def _notify(self) -> bool:
        """Wake the consumer; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:  # the loop is closed, nobody can be waiting
            return False
        return True
