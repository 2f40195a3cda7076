"""The draft pool: one replica runs one draft model and grows token trees for many verifiers."""

import asyncio
from typing import ClassVar

from cluster.deployments.ranks import launcher_for
from cluster.deployments.replica import EngineReplica, identity
from cluster.observability.logs import log_through_serve
from cluster.router.membership import Role
from workers.core.config import DrafterConfig

__all__ = ["DraftProposer"]


class DraftProposer(EngineReplica):
    """Serves DraftService on its own port. `config` is the engine's; `grace_s` Serve's time for a graceful stop."""

    role: ClassVar[Role] = "drafter"

    async def __init__(self, config: DrafterConfig, grace_s: float) -> None:  # type: ignore[misc]  # Serve awaits it
        from workers.draft.server import DraftServer  # torch belongs into replicas only

        log_through_serve()
        replica_id, incarnation = identity()
        # In a thread: loading takes seconds to minutes, and the event loop must stay free.
        server = await asyncio.to_thread(
            DraftServer, config, drafter_id=replica_id, incarnation=incarnation, launcher=launcher_for(config.model)
        )
        await self._start(server, replica_id, incarnation, grace_s)

    async def __del__(self) -> None:
        await self.close()
