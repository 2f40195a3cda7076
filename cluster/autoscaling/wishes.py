"""How many verifiers each signal asks for, and what wishes of both pools stand on.

A wish is *absolute* when it is load divided by what one replica carries: it can be believed at any time, replicas that
are starting included. It is *relative* when it only compares ("latency is 1.4 times its target, so 1.4 times the
replicas"): it describes the replicas that ran during the window of the reports, and is believed only when their number
has been the same for a while. Otherwise every replica that starts would be asked for again until the windows have
forgotten.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.autoscaling.snapshot import VerifierSignals
from cluster.config.autoscaling import VerifierScaling

__all__ = ["MAX_RATIO", "MIN_SAMPLES", "Ground", "Load", "Wish", "verifier_wishes"]

MIN_SAMPLES = 8.0  # requests, or trees per replica, below which a quotient says nothing
MAX_RATIO = 4.0  # no signal asks for more than so many times the replicas that run
RISING_SIGMAS = 3.0  # how far arrivals may exceed completions by chance, in standard deviations
FALLING_SIGMAS = 1.0  # and the other way round, where a mistake costs nothing


@dataclass(frozen=True)
class Ground:
    """What relative wishes stand on."""

    running: int  # replicas with fresh signals
    target: int
    settled: bool  # their number has been the same for settle_s
    starting: bool = False  # more are on their way
    calm: bool = True  # and no queue was draining all that time: latencies are those of today's load

    @property
    def steady(self) -> bool:
        """Latencies wait for starting replicas too: they grow with a queue, not with the load."""
        return self.settled and not self.starting and self.calm

    def relative(self, replicas: float, *, latency: bool = False) -> float:
        """Bounded, and not above the present target while replicas come and go."""
        bounded = min(replicas, MAX_RATIO * self.running)
        trusted = self.steady if latency else self.settled
        return bounded if trusted else min(bounded, float(self.target))


@dataclass(frozen=True)
class Wish:
    replicas: float
    why: str


@dataclass(frozen=True)
class Load:
    """Sums over the verifiers that report."""

    count: int
    running: float
    waiting: float
    seats: float
    kv: float
    arrived: float
    finished: float
    refused: float
    saturated: bool  # more wait than should: seats and memory are full, whatever the load is

    @staticmethod
    def of(signals: Sequence[VerifierSignals], scaling: VerifierScaling) -> "Load":
        """`signals` are fresh and not empty."""
        waiting = sum(one.waiting for one in signals)
        return Load(
            count=len(signals),
            running=sum(one.running for one in signals),
            waiting=waiting,
            seats=max(sum(one.seats for one in signals), float(len(signals))),
            kv=sum(one.kv_usage for one in signals),
            arrived=sum(one.arrived for one in signals),
            finished=sum(one.finished for one in signals),
            refused=sum(one.refused for one in signals),
            saturated=waiting > scaling.target_waiting_requests * len(signals),
        )

    @property
    def flow(self) -> float | None:
        """Arrivals over completions in the window: below 1 a queue drains. None when there are too few to say.

        What chance explains is taken as no difference, so that a constant load of few requests asks for nothing.
        """
        if self.finished < MIN_SAMPLES:
            return None
        chance = math.sqrt(self.arrived + self.finished)
        if self.arrived > self.finished:
            return 1.0 + max(0.0, self.arrived - self.finished - RISING_SIGMAS * chance) / self.finished
        return 1.0 - max(0.0, self.finished - self.arrived - FALLING_SIGMAS * chance) / self.finished

    @property
    def draining(self) -> bool:
        flow = self.flow
        return self.saturated and flow is not None and flow < 1.0 and not self.refused

    def ease(self, ground: Ground) -> float:
        """What remains of the running requests when those that had waited are through; 1 where none had."""
        flow = self.flow
        return 1.0 if flow is None or (ground.calm and not self.draining) else min(1.0, flow)


def verifier_wishes(
    signals: Sequence[VerifierSignals], load: Load, scaling: VerifierScaling, ground: Ground
) -> dict[str, Wish]:
    """By signal; `signals` are those that `load` was made of."""
    return {**_load_wishes(load, scaling, ground), **_latency_wishes(signals, load, scaling, ground)}


def _load_wishes(load: Load, scaling: VerifierScaling, ground: Ground) -> dict[str, Wish]:
    carried = load.seats / load.count * scaling.target_utilization
    kv = load.kv / scaling.target_kv_usage
    memory = f"K/V memory {load.kv / load.count:.0%} in use"
    if not load.saturated:
        running = load.running * load.ease(ground)
        text = f"{load.running:.0f} running and {load.waiting:.0f} waiting for {load.seats:.0f} seats"
        return {"kv": Wish(kv, memory), "running": Wish((running + load.waiting) / carried, text)}
    # What runs is what fits, not what is needed; that follows from how many come and how many go.
    text = f"{load.waiting:.0f} waiting, {load.running:.0f} running, {load.arrived:.0f} came, {load.finished:.0f} went"
    if load.draining:
        return {"queue": Wish(min(float(ground.target), MAX_RATIO * load.count), f"{text}: the queue is draining")}
    flow = load.flow or 1.0
    wishes = {
        "kv": Wish(ground.relative(kv * flow), memory),
        "running": Wish(ground.relative(max(load.count, load.running * flow / carried)), text),
    }
    if load.flow is None or load.refused:  # the flow is not known, or there is more than can be seen
        backlog = min(load.waiting, max(load.seats / 4, scaling.target_waiting_requests * load.count))
        queue = max(float(load.count), load.running / carried) + backlog / carried
        refused = f", {load.refused:.0f} refused" if load.refused else ""
        wishes["queue"] = Wish(ground.relative(queue), text + refused)
    return wishes


def _latency_wishes(
    signals: Sequence[VerifierSignals], load: Load, scaling: VerifierScaling, ground: Ground
) -> dict[str, Wish]:
    most = (load.running + load.waiting) / (load.seats / load.count * scaling.min_latency_utilization)
    wishes = {}
    for name, target_ms, values in (
        ("ttft", scaling.target_ttft_ms, [one.ttft_ms for one in signals if one.ttft_ms is not None]),
        ("itl", scaling.target_itl_ms, [one.itl_ms for one in signals if one.itl_ms is not None]),
    ):
        if target_ms is None or not values:
            continue
        mean = sum(values) / len(values)
        wish, text = load.count * mean / target_ms, f"{name.upper()} {mean:.0f} ms of {target_ms:g}"
        if wish > most:
            wish, text = most, f"{text}, but more replicas would lie idle"
        wishes[name] = Wish(ground.relative(wish, latency=True), text)
    return wishes
