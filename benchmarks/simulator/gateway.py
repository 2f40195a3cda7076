"""A gateway: the real `RoutingPool` of each pool, on the simulated clock, and nothing that it could not know."""

import random
from collections.abc import Iterable
from time import thread_time

from benchmarks.simulator.events import Timeline
from benchmarks.simulator.request import SimulatedRequest
from cluster.config.routing import PoolRouting, RoutingConfig
from cluster.router.decision import PoolName
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.policies.registry import build_policy
from cluster.router.pool import RoutingPool
from cluster.router.replica_table import ReplicaKey, key_of

__all__ = ["SimulatedGateway"]


class SimulatedGateway:
    """`decision_ms[pool]`: processor time that each choice took on this machine."""

    def __init__(self, routing: RoutingConfig, timeline: Timeline, rng: random.Random) -> None:
        def pool(name: PoolName, config: PoolRouting) -> RoutingPool:
            policy = build_policy(config)
            return RoutingPool(
                name, config, policy, max_sessions=routing.max_sessions, clock=timeline.clock, draw=rng.random
            )

        self.pools = {"verifier": pool("verifier", routing.verifiers), "drafter": pool("drafter", routing.drafters)}
        self.decision_ms: dict[str, list[float]] = {"verifier": [], "drafter": []}

    def update(self, role: PoolName, records: Iterable[ReplicaRecord]) -> None:
        self.pools[role].update_members(records)

    def hear(self, record: ReplicaRecord, load: ReplicaLoad, stored: Iterable[int], removed: Iterable[int]) -> None:
        pool, key = self.pools[record.role], key_of(record)
        pool.apply(key, cleared=False, stored=stored, removed=removed)
        pool.report(key, load)

    def choose(
        self, role: PoolName, request: SimulatedRequest, count: int, avoided: Iterable[ReplicaKey] = ()
    ) -> tuple[ReplicaRecord, ...]:
        """The first is noted as taking it: `release` it."""
        without = frozenset(avoided)
        started = thread_time()
        usable = (lambda record: key_of(record) not in without) if without else _anyone
        choice = self.pools[role].choose(request, usable, count)
        self.decision_ms[role].append((thread_time() - started) * 1e3)
        return choice.records if choice is not None else ()

    def release(self, record: ReplicaRecord) -> None:
        self.pools[record.role].release(record)


def _anyone(record: ReplicaRecord) -> bool:
    return True
