"""Which replicas live, as Serve tells this process.

Serve creates request routers itself and pickles their class by value, so a
router cannot be handed an object and its own module's globals are a private
copy. The table that routers write and the gateway reads therefore lives here,
in another module: the one process-wide value of the control plane.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

__all__ = ["MEMBERSHIP", "Membership", "ReplicaRecord", "Role"]

Role = Literal["verifier", "drafter"]


@dataclass(frozen=True)
class ReplicaRecord:
    """What a replica says about itself through Serve's replica metadata. It never changes while the process lives."""

    role: Role
    replica_id: str
    address: str  # host:port of its own gRPC server
    incarnation: int
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    kv_block_size: int

    def to_metadata(self) -> dict[str, Any]:
        """JSON-serialisable form for `record_replica_metadata`."""
        return asdict(self)

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any]) -> "ReplicaRecord | None":
        """The record, or None while the replica has not reported one (or reported a newer form)."""
        names = {field.name for field in fields(ReplicaRecord)}
        if set(metadata) != names:
            return None
        return ReplicaRecord(**metadata)


class Membership:
    """Live replicas by (application, deployment). Thread-safe: routers publish from Serve's router thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], tuple[ReplicaRecord, ...]] = {}

    def publish(self, application: str, deployment: str, metadata: Iterable[Mapping[str, Any]]) -> None:
        """Replace what is known of one deployment: the metadata of each live replica."""
        found = [record for one in metadata if (record := ReplicaRecord.from_metadata(one)) is not None]
        found.sort(key=lambda record: record.replica_id)
        with self._lock:
            self._records[application, deployment] = tuple(found)

    def records(self, application: str, deployment: str) -> tuple[ReplicaRecord, ...]:
        """Live replicas of one deployment, in order of replica id; empty while nothing is known."""
        with self._lock:
            return self._records.get((application, deployment), ())


MEMBERSHIP = Membership()
