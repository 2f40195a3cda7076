"""The gateway's view of both pools, from what Serve's routers publish."""

from collections.abc import Sequence
from dataclasses import fields

from cluster.gateway.directory import ReplicaLoad, ReplicaState
from cluster.router.membership import Membership, Stats

__all__ = ["MembershipDirectory", "load_from_stats"]

_LOAD_FIELDS = tuple(field.name for field in fields(ReplicaLoad))


def load_from_stats(stats: Stats) -> ReplicaLoad:
    """What a replica reported through `record_routing_stats`; zeros before the first report."""
    return ReplicaLoad(**{name: int(stats.get(name, 0)) for name in _LOAD_FIELDS})


class MembershipDirectory:
    """Implements `cluster.gateway.directory.ReplicaDirectory`. A look-up costs microseconds and never blocks."""

    def __init__(self, membership: Membership, application: str, verifiers: str, drafters: str | None) -> None:
        """`verifiers`, `drafters`: names of the deployments; None = there is no draft pool."""
        self._membership = membership
        self._application = application
        self._verifiers = verifiers
        self._drafters = drafters

    def verifiers(self) -> Sequence[ReplicaState]:
        return self._states(self._verifiers)

    def drafters(self) -> Sequence[ReplicaState]:
        return self._states(self._drafters) if self._drafters is not None else ()

    def _states(self, deployment: str) -> Sequence[ReplicaState]:
        known = self._membership.records(self._application, deployment)
        return [ReplicaState(record, load_from_stats(stats)) for record, stats in known]
