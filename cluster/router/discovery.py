"""The request router through which Serve tells the gateway who lives.

Serve pickles this module by value: keep no state here (`cluster.router.membership`).
"""

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica

from cluster.router import membership  # the module: a name from it would be pickled by value as well

__all__ = ["DiscoveryRouter"]


class DiscoveryRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]  # ray ships no types
    """Publishes each change of membership; requests themselves go over our own gRPC streams.

    FIFOMixin, because without it concurrent calls of one parent request hang (Ray 2.60).
    """

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        deployment = self._deployment_id
        membership.MEMBERSHIP.publish(deployment.app_name, deployment.name, [one.replica_metadata for one in replicas])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All in one rank: Serve takes the shortest queue. Only control calls come this way."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # else a tight loop while all are full
        return [candidate_replicas] if candidate_replicas else []
