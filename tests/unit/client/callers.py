"""One way to call both clients, so that each behaviour is tested on both."""

import asyncio
from typing import Any, Protocol

from outrider import AsyncClient, Client, Delta, Generation
from outrider.testing import FakeClock

__all__ = ["CALLERS", "Caller"]


class Caller(Protocol):
    """Makes one call with a new client whose clock is `clock`, unless `settings` say otherwise."""

    def generate(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Generation: ...

    def deltas(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> list[Delta]: ...

    def unary(self, method: str, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Any: ...


class _Sync:
    def generate(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Generation:
        with Client(target, **{"clock": clock, "sleep": clock.sleep, **settings}) as client:
            return client.generate(**options)

    def deltas(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> list[Delta]:
        with Client(target, **{"clock": clock, "sleep": clock.sleep, **settings}) as client:
            return list(client.stream(**options))

    def unary(self, method: str, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Any:
        with Client(target, **{"clock": clock, "sleep": clock.sleep, **settings}) as client:
            return getattr(client, method)(**options)


class _Async:
    def generate(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Generation:
        async def call() -> Generation:
            async with AsyncClient(target, **{"clock": clock, "sleep": clock.async_sleep, **settings}) as client:
                return await client.generate(**options)

        return asyncio.run(call())

    def deltas(self, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> list[Delta]:
        async def call() -> list[Delta]:
            async with AsyncClient(target, **{"clock": clock, "sleep": clock.async_sleep, **settings}) as client:
                return [delta async for delta in client.stream(**options)]

        return asyncio.run(call())

    def unary(self, method: str, target: str, clock: FakeClock, settings: dict[str, Any], **options: Any) -> Any:
        async def call() -> Any:
            async with AsyncClient(target, **{"clock": clock, "sleep": clock.async_sleep, **settings}) as client:
                return await getattr(client, method)(**options)

        return asyncio.run(call())


CALLERS: dict[str, Caller] = {"sync": _Sync(), "async": _Async()}
