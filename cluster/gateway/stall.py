"""Finds verifiers that are silent because they hang, among those that are silent because they have nothing to say.

A process that is frozen, or behind a network that loses everything, keeps its connections open. Whoever reads a
silent stream therefore asks the verifier for a sign of life, once for all streams that wait for the same one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from cluster.router.membership import ReplicaRecord
from cluster.router.replica_table import ReplicaKey, key_of

__all__ = ["StallWatch", "StalledError"]

RETRY_S = 1.0  # between two questions to a verifier that did not answer


class StalledError(Exception):
    """A verifier gives no sign of life."""


class StallWatch:
    """Belongs to one event loop."""

    def __init__(
        self,
        ask: Callable[[ReplicaRecord, float], Awaitable[object]],
        is_announced: Callable[[ReplicaRecord], bool],
        *,
        probe_after_s: float,
        timeout_s: float,
    ) -> None:
        """`ask` a verifier anything, within so many seconds, or raise `AioRpcError`; `probe_after_s` 0 = never ask."""
        self._ask = ask
        self._is_announced = is_announced
        self._probe_after_s = probe_after_s or None
        self._timeout_s = timeout_s
        self._probes: dict[ReplicaKey, asyncio.Task[bool]] = {}
        self._watching: dict[ReplicaKey, asyncio.Task[None]] = {}
        self._suspects: dict[ReplicaKey, float] = {}

    @property
    def suspects(self) -> Mapping[ReplicaKey, float]:
        """Verifiers that gave no sign of life and have not answered since, as the pool's `AvoidUntil`.

        A live view: an answer that waits for a verifier takes one that has recovered.
        """
        return self._suspects

    async def read(self, call: Any, verifier: ReplicaRecord, timeout_s: float | None) -> Any:
        """What `call.read()` returns or raises.

        Raises `TimeoutError` after `timeout_s`, `StalledError` when the verifier is silent and does not answer.
        """
        reading = asyncio.ensure_future(call.read())
        try:
            async with asyncio.timeout(timeout_s):
                while not (await asyncio.wait({reading}, timeout=self._probe_after_s))[0]:
                    probe = self._probe(verifier)
                    await asyncio.wait({reading, probe}, return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done() and not probe.result():
                        self._suspect(verifier)
                        raise StalledError(f"{verifier.replica_id} gives no sign of life")
            return reading.result()
        finally:
            reading.cancel()  # ends the call as well, as its reader leaves

    def close(self) -> None:
        for task in self._watching.values():
            task.cancel()

    def _probe(self, verifier: ReplicaRecord) -> "asyncio.Task[bool]":
        """The question that is under way, or a new one."""
        key = key_of(verifier)
        probe = self._probes.get(key)
        if probe is None:
            probe = self._probes[key] = asyncio.create_task(self._answers(verifier))
            probe.add_done_callback(lambda _: self._probes.pop(key, None))
        return probe

    async def _answers(self, verifier: ReplicaRecord) -> bool:
        try:
            await self._ask(verifier, self._timeout_s)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError):  # the latter: its channel has just been closed
            return False
        except asyncio.CancelledError:  # also raised when the call is cancelled, by closing its channel
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return False
        return True

    def _suspect(self, verifier: ReplicaRecord) -> None:
        """Keep answers away from it until it answers, or is announced no more."""
        key = key_of(verifier)
        if key not in self._watching:
            self._watching[key] = asyncio.create_task(self._watch(verifier))
            self._watching[key].add_done_callback(lambda _: self._forget(key))
            self._suspects[key] = math.inf

    def _forget(self, key: ReplicaKey) -> None:
        del self._watching[key], self._suspects[key]

    async def _watch(self, verifier: ReplicaRecord) -> None:
        while self._is_announced(verifier):
            await asyncio.sleep(RETRY_S)
            if await self._answers(verifier):
                return
