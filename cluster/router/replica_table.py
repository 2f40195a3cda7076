"""The replicas of one pool in numbers: what they reported, and what this gateway did since."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord

__all__ = ["ReplicaKey", "ReplicaTable", "key_of", "requests_of"]

ReplicaKey = tuple[str, int]
"""Id and incarnation: a restarted process is another replica, even under the same id."""

COLUMNS = np.dtype(
    [
        ("identity", np.uint64),
        ("group", np.int64),  # of replicas with equal block hashes
        ("block_size", np.int64),
        # as `ReplicaLoad`
        ("running_requests", np.int64),
        ("waiting_requests", np.int64),
        ("total_kv_blocks", np.int64),
        ("free_kv_blocks", np.int64),
        ("waiting_tokens", np.int64),
        ("prefill_tokens_per_s", np.float64),
        ("max_running_requests", np.int64),
        ("response_ms", np.float64),
        # what this gateway did
        ("in_flight", np.int64),  # requests of this gateway
        ("unreported", np.int64),  # of these, those that came after its last report
        ("unreported_tokens", np.int64),  # prompt tokens of the latter
        ("last_chosen", np.int64),
    ]
)

REPORTED = tuple(field.name for field in fields(ReplicaLoad))


def key_of(record: ReplicaRecord) -> ReplicaKey:
    return record.replica_id, record.incarnation


class ReplicaTable:
    """A row for each replica; rows keep their number (slot) while the replica lives, and are used again."""

    def __init__(self) -> None:
        self._rows = np.zeros(8, dtype=COLUMNS)
        self._records: list[ReplicaRecord | None] = [None] * len(self._rows)
        self._free = list(range(len(self._rows)))  # a heap of slots
        self._slots: dict[ReplicaKey, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """All slots are smaller."""
        return len(self._records)

    @property
    def keys(self) -> Sequence[ReplicaKey]:
        return tuple(self._slots)

    def slot(self, key: ReplicaKey) -> int | None:
        return self._slots.get(key)

    def record(self, slot: int) -> ReplicaRecord:
        record = self._records[slot]
        if record is None:
            raise LookupError(f"no replica has slot {slot}")
        return record

    def those(self, usable: Callable[[ReplicaRecord], bool]) -> npt.NDArray[np.intp]:
        """Slots in use by replicas for which `usable` holds, ascending."""
        found = [slot for slot, one in enumerate(self._records) if one is not None and usable(one)]
        return np.array(found, dtype=np.intp)

    def rows(self, slots: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """[slots] of COLUMNS, a copy."""
        return self._rows[slots]

    def add(self, record: ReplicaRecord, group: int) -> int:
        """A new replica; its slot."""
        if not self._free:
            size = len(self._records)
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._records += [None] * size
            self._free = list(range(size, 2 * size))
        slot = heapq.heappop(self._free)
        row = self._rows[slot]
        row["group"], row["block_size"] = group, record.kv_block_size
        row["identity"] = xxhash.xxh3_64_intdigest(record.replica_id.encode())
        self._records[slot] = record
        self._slots[key_of(record)] = slot
        return slot

    def drop(self, key: ReplicaKey) -> int:
        """A replica is gone; the slot that it had."""
        slot = self._slots.pop(key)
        self._records[slot] = None
        self._rows[slot] = np.zeros((), dtype=COLUMNS)
        heapq.heappush(self._free, slot)
        return slot

    def report(self, slot: int, load: ReplicaLoad) -> None:
        """What the replica says now, choices up to here included."""
        row = self._rows[slot]
        for name in REPORTED:
            row[name] = getattr(load, name)
        row["unreported"] = row["unreported_tokens"] = 0

    def load(self, slot: int) -> ReplicaLoad:
        """As it was reported last."""
        row = self._rows[slot]
        return ReplicaLoad(**{name: row[name].item() for name in REPORTED})

    def occupy(self, slot: int, tokens: int, number: int) -> None:
        """This gateway's choice `number` fell on it; `tokens` of the prompt are to be computed."""
        row = self._rows[slot]
        row["last_chosen"] = number
        row["in_flight"] += 1
        row["unreported"] += 1
        row["unreported_tokens"] += tokens

    def release(self, slot: int) -> None:
        """A request of this gateway has ended there, or at a row that was dropped. The next report will say so too."""
        row = self._rows[slot]
        row["in_flight"] = max(0, row["in_flight"] - 1)
        row["unreported"] = max(0, row["unreported"] - 1)


def requests_of(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """[rows]: at the replicas, as far as known. Reports lag behind; what this gateway has there is certain."""
    reported = rows["running_requests"] + rows["waiting_requests"] + rows["unreported"]
    counted: npt.NDArray[np.int64] = np.maximum(reported, rows["in_flight"])
    return counted
