"""Fault proxies on an event loop of their own, for callers that are not asynchronous."""

import random
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.faults.connection import Shape
from benchmarks.faults.proxy import FaultProxy
from workers.rpc.loop_thread import LoopThread

__all__ = ["ProxyThread", "ThreadedProxy"]

T = TypeVar("T")
CALL_S = 10.0


class ThreadedProxy:
    """The faults of a `FaultProxy`, callable from any thread; each returns when it has happened."""

    def __init__(self, proxy: FaultProxy, loop_thread: LoopThread) -> None:
        self._proxy = proxy
        self._loop_thread = loop_thread
        self.address = proxy.address

    def call(self, what: Callable[[FaultProxy], T]) -> T:
        """Run it where the proxy lives."""

        async def run() -> T:
            return what(self._proxy)

        return self._loop_thread.call(run(), CALL_S)

    @property
    def upstreams(self) -> list[str]:
        return self._proxy.upstreams

    @property
    def open_connections(self) -> int:
        return self._proxy.open_connections

    def cut(self) -> int:
        return self.call(FaultProxy.cut)

    def refuse(self) -> None:
        self.call(FaultProxy.refuse)

    def black_hole(self) -> None:
        self.call(FaultProxy.black_hole)

    def hold(self) -> None:
        self.call(FaultProxy.hold)

    def slow(self, shape: Shape) -> None:
        self.call(lambda proxy: proxy.slow(shape))

    def heal(self) -> None:
        self.call(FaultProxy.heal)

    def close(self) -> None:
        self._loop_thread.call(self._proxy.close(), CALL_S)


class ProxyThread:
    """Owns the thread and its proxies; a context manager."""

    def __init__(self, seed: int = 0) -> None:
        self._loop_thread = LoopThread("fault-proxies")
        self._rng = random.Random(seed)
        self.proxies: list[ThreadedProxy] = []

    def open(self, *upstreams: str) -> ThreadedProxy:
        """A new proxy in front of these addresses."""
        return self.call(self.open_here(*upstreams))

    async def open_here(self, *upstreams: str) -> ThreadedProxy:
        """As `open`, for coroutines that run in this thread."""
        proxy = FaultProxy(upstreams, rng=random.Random(self._rng.random()))
        await proxy.start()
        self.proxies.append(ThreadedProxy(proxy, self._loop_thread))
        return self.proxies[-1]

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in this thread and wait for it."""
        return self._loop_thread.call(coroutine, CALL_S)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self._loop_thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
