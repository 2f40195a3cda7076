"""Which replicas there are, as the gateway sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.router.membership import ReplicaRecord

__all__ = ["ReplicaDirectory", "ReplicaLoad", "ReplicaState"]


@dataclass(frozen=True)
class ReplicaLoad:
    """As a replica reported it last."""

    running_requests: int = 0
    waiting_requests: int = 0
    total_kv_blocks: int = 0
    free_kv_blocks: int = 0


@dataclass(frozen=True)
class ReplicaState:
    """A live replica; a load of zeros when none has been reported yet."""

    record: ReplicaRecord
    load: ReplicaLoad = ReplicaLoad()


class ReplicaDirectory(Protocol):
    """Where the gateway asks before every choice. Cheap: called once per request and retry."""

    def verifiers(self) -> Sequence[ReplicaState]: ...

    def drafters(self) -> Sequence[ReplicaState]: ...
