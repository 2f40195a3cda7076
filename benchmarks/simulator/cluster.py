"""The whole: arrivals, gateways, two pools, failures, the autoscaler."""

import random
from functools import partial
from typing import Any

import numpy as np

from benchmarks.simulator.costs import StepPlanner
from benchmarks.simulator.drafter import SimulatedDrafter
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.gateway import SimulatedGateway
from benchmarks.simulator.metrics import Metrics, percentiles
from benchmarks.simulator.request import Running, routed
from benchmarks.simulator.scaling import Scaling
from benchmarks.simulator.settings import SimulationSettings
from benchmarks.simulator.verifier import SimulatedVerifier
from benchmarks.simulator.workloads import Prompt, Workload, arrival_times, load_points
from cluster.router.membership import ReplicaRecord

__all__ = ["Cluster"]

ATTEMPTS = 3  # verifiers that are tried for a request
DRAFTERS_PER_REQUEST = 2
WAIT_S = 0.5  # until a request that found no verifier at all tries again


class Cluster:
    """`run` it once, then ask for its `report`."""

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self.timeline = Timeline()
        self.metrics = Metrics(settings)
        self.planner = StepPlanner(settings.verifier.curve)
        # Each part has its own chance, so that e.g. another policy does not change the load.
        parts = ("load", "work", "gateways", "told", "kills")
        self._load_rng, work, gateways, told, self._kill_rng = (
            random.Random(f"{settings.seed} {one}") for one in parts
        )
        self.workload = Workload(settings.workload, settings.block_size, work)
        self.points = load_points(settings.load, settings.duration_s)
        self.gateways = [
            SimulatedGateway(settings.routing, self.timeline, random.Random(gateways.random()))
            for _ in range(settings.gateways)
        ]
        self._next_gateway = 0
        common: dict[str, Any] = {
            "period_s": settings.report_period_s,
            "delay_s": settings.report_delay_s,
            "block_size": settings.block_size,
            "timeline": self.timeline,
            "gateways": self.gateways,
            "rng": told,
        }
        self.verifiers: Fleet[SimulatedVerifier] = Fleet(
            "verifier", self._new_verifier, lambda one: one.load(), start_s=settings.verifier.start_s, **common
        )
        self.drafters: Fleet[SimulatedDrafter] = Fleet(
            "drafter",
            self._new_drafter,
            lambda one: one.load(self.timeline.now),
            start_s=settings.drafter.start_s,
            **common,
        )
        self._step_ms = self.planner.plan(max(1, settings.verifier.seats // 2), 0, 0, 0, 0.0).ms
        self.verifiers.begin(settings.verifiers)
        self.drafters.begin(settings.drafters)
        self.scaling = Scaling(settings, self.timeline, self.verifiers, self.drafters, self.points)

    def run(self) -> None:
        arrivals = arrival_times(self.points, self.workload.requests_per_arrival, self._load_rng)
        self._plan_arrival(arrivals)
        for _ in range(round(self.settings.initial_requests / self.workload.requests_per_arrival)):
            for prompt in self.workload.arrive():
                self.timeline.after(self._load_rng.random() + prompt.delay_s, partial(self.submit, prompt))
        self.scaling.start()
        self._plan_kill()
        self.timeline.run(self.settings.duration_s)
        self.verifiers.count()
        self.drafters.count()
        for verifier in self.verifiers.running:
            self.metrics.left_over([*verifier.reading, *verifier.waiting])

    # Requests

    def _plan_arrival(self, arrivals: Any) -> None:
        time_s = next(arrivals, None)
        if time_s is not None:
            self.timeline.at(time_s, partial(self._arrive, arrivals))

    def _arrive(self, arrivals: Any) -> None:
        for prompt in self.workload.arrive():
            self.timeline.after(prompt.delay_s, partial(self.submit, prompt))
        self._plan_arrival(arrivals)

    def submit(self, prompt: Prompt) -> None:
        """A new request, at the next gateway."""
        self.metrics.offer(self.timeline.now)
        gateway = self.gateways[self._next_gateway]
        self._next_gateway = (self._next_gateway + 1) % len(self.gateways)
        self._place(gateway, Running(prompt, self.timeline.now, lambda running, whole: None), 0)

    def _place(self, gateway: SimulatedGateway, running: Running, tries: int) -> None:
        request = routed(running.prompt, self.settings.block_size)
        avoided: list[tuple[str, int]] = []
        for _ in range(ATTEMPTS):
            chosen = gateway.choose("verifier", request, 1, avoided)
            if not chosen:
                break
            verifier = self.verifiers.of(chosen[0])
            drafters = gateway.choose("drafter", request, DRAFTERS_PER_REQUEST) if self.drafters.running else ()
            running.drafters = [self.drafters.of(record) for record in drafters]
            running.ended = partial(self._ended, gateway, chosen[0], drafters[:1])
            if verifier.enqueue(running):
                return
            verifier.totals.refused += 1
            self._released(gateway, chosen[0], drafters[:1])
            avoided.append((chosen[0].replica_id, chosen[0].incarnation))
        if not avoided and tries * WAIT_S < 60.0:  # there is no verifier at all
            self.timeline.after(WAIT_S, partial(self._place, gateway, running, tries + 1))
            return
        self.metrics.refuse(running)

    def _ended(
        self,
        gateway: SimulatedGateway,
        verifier: ReplicaRecord,
        drafters: tuple[ReplicaRecord, ...],
        running: Running,
        whole: bool,
    ) -> None:
        self._released(gateway, verifier, drafters)
        if not whole:
            self._place(gateway, running.continued(self.settings.block_size), 0)
            return
        self.metrics.finish(running, self.timeline.now)
        following = self.workload.follow(running.prompt)
        if following is not None:
            self.timeline.after(following.delay_s, partial(self.submit, following))

    def _released(
        self, gateway: SimulatedGateway, verifier: ReplicaRecord, drafters: tuple[ReplicaRecord, ...]
    ) -> None:
        gateway.release(verifier)
        for drafter in drafters:
            gateway.release(drafter)

    # Replicas

    def _new_verifier(self, record: ReplicaRecord) -> SimulatedVerifier:
        return SimulatedVerifier(record, self.settings.verifier, self.planner, self.timeline, self.metrics)

    def _new_drafter(self, record: ReplicaRecord) -> SimulatedDrafter:
        return SimulatedDrafter(record, self.settings.drafter, self._step_ms)

    def _plan_kill(self) -> None:
        replicas = len(self.verifiers.running) + len(self.drafters.running)
        if self.settings.kills_per_hour and replicas:
            rate = replicas * self.settings.kills_per_hour / 3600.0
            self.timeline.after(self._kill_rng.expovariate(rate), self._kill)

    def _kill(self) -> None:
        """Anyone; Serve starts another one in its place."""
        victim = self._kill_rng.randrange(max(1, len(self.verifiers.running) + len(self.drafters.running)))
        if victim < len(self.verifiers.running):
            verifier = self.verifiers.running[victim]
            lost = verifier.lose()
            self.verifiers.remove(verifier)
            self.verifiers.start_one()
            for running in lost:
                running.ended(running, False)
        elif self.drafters.running:
            drafter = self.drafters.running[victim - len(self.verifiers.running)]
            drafter.alive = False
            self.drafters.remove(drafter)
            self.drafters.start_one()
        self._plan_kill()

    def report(self) -> dict[str, Any]:
        """JSON; the same for the same settings, but for `decision_ms`, which is this machine's."""
        busy = [one.totals.busy_s for one in self.verifiers.running]
        seats = self.settings.verifier.seats
        held = sum(one.totals.seat_s for one in self.verifiers.running)
        return {
            **self.metrics.summary(),
            "utilisation": {
                "busy": round(sum(busy) / max(1e-9, self.verifiers.replica_s), 4),
                "seats": round(held / max(1e-9, self.verifiers.replica_s * seats), 4),
                "most_to_mean_busy": round(max(busy, default=0.0) / max(1e-9, float(np.mean(busy or [0.0]))), 3),
            },
            "replica_s": {"verifiers": round(self.verifiers.replica_s), "drafters": round(self.drafters.replica_s)},
            "decision_ms": {
                role: percentiles([ms for gateway in self.gateways for ms in gateway.decision_ms[role]])
                for role in ("verifier", "drafter")
            },
            "events": self.timeline.happened,
        }
