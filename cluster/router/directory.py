"""Which replicas there are, as a gateway sees them."""

from collections.abc import Sequence
from typing import Protocol

from cluster.router.membership import Membership, ReplicaRecord

__all__ = ["MembershipDirectory", "ReplicaDirectory"]


class ReplicaDirectory(Protocol):
    """Where the gateway asks before every choice. Cheap: called once per request and retry."""

    def verifiers(self) -> Sequence[ReplicaRecord]: ...

    def drafters(self) -> Sequence[ReplicaRecord]: ...


class MembershipDirectory:
    """A `ReplicaDirectory` of what Serve's routers publish. A look-up costs microseconds and never blocks."""

    def __init__(self, membership: Membership, application: str, verifiers: str, drafters: str | None) -> None:
        """`verifiers`, `drafters`: names of the deployments; None = there is no draft pool."""
        self._membership = membership
        self._application = application
        self._verifiers = verifiers
        self._drafters = drafters

    def verifiers(self) -> Sequence[ReplicaRecord]:
        return self._membership.records(self._application, self._verifiers)

    def drafters(self) -> Sequence[ReplicaRecord]:
        return () if self._drafters is None else self._membership.records(self._application, self._drafters)
