"""Ends RPCs that are silent for too long, for readers that wait in a thread. asyncio has timeouts of its own."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from outrider.failure import Failure

__all__ = ["SilenceWatcher", "Watch", "silent_for"]


def silent_for(limit_s: float | None) -> Failure:
    """The failure of an attempt without a sign of life for so long: the way to the server is lost, or it hangs."""
    return Failure(grpc.StatusCode.UNAVAILABLE, f"no sign of life from the server for {limit_s or 0.0:g} s")


class Watch:
    """One RPC under watch. Only time that its reader spends waiting counts."""

    def __init__(self, rpc: Any) -> None:
        self._rpc = rpc
        self._expires_at = math.inf
        self.expired = False

    def waiting(self, limit_s: float | None) -> None:
        """The reader begins to wait; None = for as long as it takes."""
        self._expires_at = math.inf if limit_s is None else time.monotonic() + limit_s

    def received(self) -> None:
        """The reader has something to do."""
        self._expires_at = math.inf

    def check(self, now: float) -> None:
        if now >= self._expires_at:
            self.expired = True
            self._rpc.cancel()


class SilenceWatcher:
    """One daemon thread for all RPCs of a client; it runs while there are any."""

    def __init__(self, period_s: float) -> None:
        """`period_s`: how often it looks; an RPC ends that much too late at most."""
        self._period_s = period_s
        self._watches: set[Watch] = set()
        self._lock = threading.Lock()
        self._running = False

    @contextmanager
    def watch(self, rpc: Any) -> Iterator[Watch]:
        watch = Watch(rpc)
        with self._lock:
            self._watches.add(watch)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="outrider-silence", daemon=True).start()
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.discard(watch)

    def _run(self) -> None:
        while True:
            time.sleep(self._period_s)
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._running = False
                    return
            for watch in watches:
                watch.check(time.monotonic())
