"""A `RoutingPool` for tests: replicas by name, time by hand."""

import random
from dataclasses import dataclass, field
from typing import Any

from cluster.config.routing import PoolRouting
from cluster.router.decision import Choice, PoolName, RoutedRequest
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.policies.registry import build_policy
from cluster.router.pool import RoutingPool
from cluster.router.replica_table import key_of

BLOCK = 4
IDLE = ReplicaLoad(total_kv_blocks=1000, free_kv_blocks=1000, max_running_requests=8, prefill_tokens_per_s=1000.0)


def record(name: str, incarnation: int = 1, fingerprint: str = "f") -> ReplicaRecord:
    return ReplicaRecord("verifier", name, f"{name}:1", incarnation, "m", fingerprint, "t", BLOCK)


def request(tokens: list[int] | range = range(64), **fields: Any) -> RoutedRequest:
    return RoutedRequest("r", tuple(tokens), **({"output_tokens": 16} | fields))


@dataclass
class Rig:
    """`names` of replicas that are idle; `now` moves when a test says so."""

    names: tuple[str, ...] = ("a", "b", "c")
    settings: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    max_sessions: int = 100
    pool_name: PoolName = "verifier"

    def __post_init__(self) -> None:
        config = PoolRouting(**self.settings)
        self.pool = RoutingPool(
            self.pool_name,
            config,
            build_policy(config),
            max_sessions=self.max_sessions,
            clock=lambda: self.now,
            draw=random.Random(5).random,
        )
        self.records = {name: record(name) for name in self.names}
        self.pool.update_members(self.records.values())
        for name in self.names:
            self.report(name)

    def report(self, name: str, **changes: Any) -> None:
        self.pool.report(key_of(self.records[name]), ReplicaLoad(**(vars(IDLE) | changes)))

    def holds(self, name: str, wanted: RoutedRequest, blocks: int) -> None:
        stored = wanted.block_hashes("f", BLOCK)[:blocks]
        self.pool.apply(key_of(self.records[name]), cleared=False, stored=stored, removed=())

    def in_flight(self) -> int:
        """Requests that were chosen for and not released."""
        table = self.pool.table
        return int(table.rows(table.those(lambda one: True))["in_flight"].sum())

    def choose(self, wanted: RoutedRequest | None = None, count: int = 1) -> Choice:
        choice = self.pool.choose(wanted or request(), lambda record: True, count)
        assert choice is not None
        return choice

    def chosen(self, wanted: RoutedRequest | None = None) -> str:
        return self.choose(wanted).records[0].replica_id
