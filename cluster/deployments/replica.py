"""What both pools have in common: one engine server inside one Serve replica.

Serve creates, watches and stops the replica. Requests never pass through it:
they reach the server's own port, which the replica's metadata announces.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

import ray
from ray import serve

from cluster.observability.ray_export import export_to_ray
from cluster.router.membership import ReplicaRecord, Role
from workers.core.errors import UnavailableError
from workers.core.readings import Readings

__all__ = ["EngineReplica", "EngineServer", "drain_budget_s", "identity", "leave_when_lost"]

STOP_MARGIN_S = 2.0
RANK_CHECK_S = 0.25
FAREWELL_S = 1.0  # for the answers of a failed engine to reach the gateways

logger = logging.getLogger("ray.serve")


class EngineServer(Protocol):
    """The common surface of `VerifierServer` and `DraftServer`."""

    async def start(self, host: str, port: int) -> str:
        """Listen; returns host:port."""
        ...

    async def drain(self, timeout_s: float) -> object:
        """Accept nothing new; return when all sessions have ended, or after `timeout_s`."""
        ...

    async def stop(self) -> None: ...
    def check_health(self) -> None: ...
    def load_signals(self) -> dict[str, float]: ...
    def readings(self) -> Readings: ...

    def check_ranks(self) -> None:
        """Raise `UnavailableError` when a rank of its tensor-parallel group has been lost."""
        ...

    def info(self) -> Mapping[str, object]:
        """With `model`, `model_fingerprint`, `tokenizer_hash` and `kv_block_size`."""
        ...


def drain_budget_s(graceful_shutdown_timeout_s: float) -> float:
    """How long sessions may go on after Serve asked for the end; the rest is for stopping before it kills."""
    return max(0.0, graceful_shutdown_timeout_s - max(STOP_MARGIN_S, 0.1 * graceful_shutdown_timeout_s))


class EngineReplica:
    """Base of the two engine deployments. Subclasses build the server, with the engine imported inside."""

    role: ClassVar[Role]

    async def _start(
        self,
        server: EngineServer,
        replica_id: str,
        incarnation: int,
        grace_s: float,
    ) -> None:
        self._grace_s = grace_s
        self._server = server
        address = await server.start(ray.util.get_node_ip_address(), 0)
        info = server.info()
        self._record = ReplicaRecord(
            role=self.role,
            replica_id=replica_id,
            address=address,
            incarnation=incarnation,
            model=str(info["model"]),
            model_fingerprint=str(info["model_fingerprint"]),
            tokenizer_hash=str(info["tokenizer_hash"]),
            kv_block_size=int(str(info["kv_block_size"])),
        )
        self._exporter = export_to_ray(self.role, server.readings)
        self._watch = asyncio.create_task(leave_when_lost(server.check_ranks, self.leave))

    @staticmethod
    def leave() -> None:
        """End this process: Serve replaces a replica that is gone at once, one that is ill after three checks."""
        os._exit(1)

    def record_replica_metadata(self) -> dict[str, str | int]:
        """Asked once by Serve, when the replica is ready; reaches every router (`cluster.router.discovery`).

        The load is no business of Serve's routers: gateways hear of it on the KV event streams, twice a second.
        """
        return self._record.to_metadata()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Asked by Serve where the pool is autoscaled; reaches the policy (`cluster.deployments.autoscaling`).

        Floats only: Serve stops asking for good when the first answer holds anything else.
        """
        return self._server.load_signals()

    async def check_health(self) -> None:
        """Raises when the engine cannot serve any more; Serve then replaces the replica."""
        self._server.check_health()

    async def close(self) -> None:
        """Let the sessions end, within bounds, then stop. Subclasses call it from `__del__`.

        Serve awaits that after the replica has left the routers' tables; it cannot see our sessions itself.
        """
        server = getattr(self, "_server", None)
        if server is not None:
            await server.drain(drain_budget_s(self._grace_s))
            self._watch.cancel()
            if self._exporter is not None:
                await asyncio.to_thread(self._exporter.stop)
            await server.stop()


async def leave_when_lost(check_ranks: Callable[[], None], leave: Callable[[], None]) -> None:
    """Look after the ranks, and `leave` soon after one has been lost; requests are told so in between."""
    while True:
        await asyncio.sleep(RANK_CHECK_S)
        try:
            check_ranks()
        except UnavailableError as error:
            logger.error("this replica ends: %s", error)
            await asyncio.sleep(FAREWELL_S)
            leave()
            return


def identity() -> tuple[str, int]:
    """This replica's id, and its incarnation: a number that changes at every start of a process."""
    return serve.get_replica_context().replica_id.unique_id, time.time_ns()
