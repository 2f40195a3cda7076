"""The verifier pool: one replica runs one target model and alone commits tokens."""

import asyncio
from typing import ClassVar

from cluster.deployments.ranks import launcher_for
from cluster.deployments.replica import EngineReplica, identity
from cluster.observability.logs import log_through_serve
from cluster.router.membership import Role
from workers.core.config import VerifierConfig

__all__ = ["TargetVerifier"]


class TargetVerifier(EngineReplica):
    """Serves VerifierService on its own port. `config` is the engine's; `grace_s` Serve's time for a graceful stop."""

    role: ClassVar[Role] = "verifier"

    async def __init__(self, config: VerifierConfig, grace_s: float) -> None:  # type: ignore[misc]  # Serve awaits it
        from workers.verifier.server import VerifierServer  # torch belongs into replicas only

        log_through_serve()
        replica_id, incarnation = identity()
        # In a thread: loading takes seconds to minutes, and the event loop must stay free.
        server = await asyncio.to_thread(
            VerifierServer, config, verifier_id=replica_id, incarnation=incarnation, launcher=launcher_for(config.model)
        )
        await self._start(server, replica_id, incarnation, grace_s)

    async def __del__(self) -> None:
        await self.close()
