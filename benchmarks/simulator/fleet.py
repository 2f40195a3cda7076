"""One pool: replicas that run, start, drain and die, and what they tell the gateways."""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from benchmarks.simulator.drafter import SimulatedDrafter
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.gateway import SimulatedGateway
from benchmarks.simulator.verifier import SimulatedVerifier
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord, Role

__all__ = ["Fleet"]

Replica = TypeVar("Replica", SimulatedVerifier, SimulatedDrafter)


class Fleet(Generic[Replica]):
    """`running`: replicas that gateways know. `target` counts those that start as well."""

    def __init__(
        self,
        role: Role,
        make: Callable[[ReplicaRecord], Replica],
        load: Callable[[Replica], ReplicaLoad],
        *,
        start_s: float,
        period_s: float,
        delay_s: float,
        block_size: int,
        timeline: Timeline,
        gateways: Sequence[SimulatedGateway],
        rng: random.Random,
    ) -> None:
        self.role = role
        self.running: list[Replica] = []
        self.replica_s = 0.0
        self._make: Callable[[ReplicaRecord], Replica] = make
        self._load: Callable[[Replica], ReplicaLoad] = load
        self._start_s = start_s
        self._period_s = period_s
        self._delay_s = delay_s
        self._block_size = block_size
        self._timeline = timeline
        self._gateways = gateways
        self._rng = rng
        self._made = 0
        self._asked = 0
        self._announcing = False
        self._starting: list[int] = []  # in order of time
        self._by_record: dict[ReplicaRecord, Replica] = {}
        self._counted_s = 0.0

    @property
    def starting(self) -> int:
        return len(self._starting)

    @property
    def target(self) -> int:
        return len(self.running) + self.starting

    def of(self, record: ReplicaRecord) -> Replica:
        return self._by_record[record]

    def begin(self, count: int) -> None:
        """Replicas that run from the start."""
        for _ in range(count):
            self._run()
        self._announce()

    def ask(self, target: int) -> None:
        """Those that have not started yet are given up first, then the youngest, which finish what they have."""
        self.count()
        while self.target < target:
            self.start_one()
        while self._starting and self.target > target:
            self._starting.pop()
        drained = self.running[target:] if self.target > target else []
        for replica in drained:
            replica.draining = True
            self.running.remove(replica)
        if drained:
            self._announce()

    def start_one(self) -> None:
        self.count()
        self._asked += 1
        self._starting.append(self._asked)
        self._timeline.after(self._start_s, partial(self._started, self._asked))

    def remove(self, replica: Replica) -> None:
        """It died."""
        self.count()
        self.running.remove(replica)
        self._announce()

    def count(self) -> None:
        """Replicas are paid for from the decision on."""
        self.replica_s += self.target * (self._timeline.now - self._counted_s)
        self._counted_s = self._timeline.now

    def _started(self, number: int) -> None:
        if number not in self._starting:
            return  # given up meanwhile
        self.count()
        self._starting.remove(number)
        self._run()
        if not self._announcing:  # once for all that start at this very moment
            self._announcing = True
            self._timeline.after(0.0, self._announce)

    def _run(self) -> None:
        self._made += 1
        name = f"{self.role}-{self._made}"
        record = ReplicaRecord(self.role, name, f"{name}:1", self._made, "simulated", self.role, "t", self._block_size)
        replica = self._make(record)
        self._by_record[record] = replica
        self.running.append(replica)
        phase_s = self._timeline.now + self._rng.random() * self._period_s
        replica.on_change = partial(self._changed, replica, phase_s)
        replica.changed()

    def _announce(self) -> None:
        self._announcing = False
        records = [replica.record for replica in self.running]
        for gateway in self._gateways:
            gateway.update(self.role, records)

    def _changed(self, replica: Replica, phase_s: float) -> None:
        """It speaks up at its next beat. Beats without news are left out: they would change nothing at a gateway."""
        beats = max(0, math.ceil((self._timeline.now - phase_s) / self._period_s))
        self._timeline.at(phase_s + beats * self._period_s, partial(self._tell, replica))

    def _tell(self, replica: Replica) -> None:
        if not replica.alive:
            return
        replica.dirty = False
        stored, removed = replica.cache.take_events()
        load = self._load(replica)
        self._timeline.after(self._delay_s, partial(self._hear, replica.record, load, stored, removed))
        if load.waiting_tokens:  # they become fewer by themselves
            self._timeline.after(self._period_s, replica.changed)

    def _hear(self, record: ReplicaRecord, load: ReplicaLoad, stored: list[int], removed: list[int]) -> None:
        for gateway in self._gateways:
            gateway.hear(record, load, stored, removed)
