"""The real autoscaling decision over simulated replicas, and the record of what it did."""

import math
from collections import deque
from collections.abc import Sequence

from benchmarks.simulator.drafter import SimulatedDrafter
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.settings import ScalingBounds, SimulationSettings
from benchmarks.simulator.verifier import SimulatedVerifier
from cluster.autoscaling.decide import decide
from cluster.autoscaling.replay import Event, Replay, Row
from cluster.autoscaling.snapshot import DrafterSignals, PoolDecision, PoolView, Snapshot, State, VerifierSignals
from cluster.autoscaling.trace import LoadPoint

__all__ = ["Scaling"]

WINDOW_S = 60.0  # over which replicas report
COUNTED = ("arrived", "finished", "refused", "nodes", "trees", "accepted")


class Scaling:
    """Decides every `interval_s`; without settings it only keeps the record."""

    def __init__(
        self,
        settings: SimulationSettings,
        timeline: Timeline,
        verifiers: Fleet[SimulatedVerifier],
        drafters: Fleet[SimulatedDrafter],
        points: Sequence[LoadPoint],
    ) -> None:
        self.replay = Replay()
        self._settings = settings
        self._timeline = timeline
        self._verifiers = verifiers
        self._drafters = drafters
        self._points = points
        self._state = State()
        self._history: dict[str, deque[tuple[float, ...]]] = {}
        self._reports: tuple[tuple[VerifierSignals, ...], tuple[DrafterSignals, ...]] = ((), ())
        self._reported_s = -1e9

    def start(self) -> None:
        autoscaling = self._settings.autoscaling
        if autoscaling is not None:
            self._timeline.after(autoscaling.interval_s, self._decide)

    def _decide(self) -> None:
        settings, now_s = self._settings, self._timeline.now
        assert settings.autoscaling is not None  # noqa: S101
        if now_s - self._reported_s >= settings.metrics_period_s - 1e-9:
            self._report()
        verifiers, drafters = self._reports
        decision = decide(
            Snapshot(
                now_s,
                _view(self._verifiers, settings.verifier_bounds, verifiers),
                _view(self._drafters, settings.drafter_bounds, drafters) if settings.drafters else None,
            ),
            settings.autoscaling,
            self._state,
        )
        self._state = decision.state
        self._put("verifiers", self._verifiers, decision.verifiers)
        self._put("drafters", self._drafters, decision.drafters)
        self._note()
        self._timeline.after(settings.autoscaling.interval_s, self._decide)

    def _put(
        self, name: str, fleet: Fleet[SimulatedVerifier] | Fleet[SimulatedDrafter], decision: PoolDecision | None
    ) -> None:
        if decision is not None and decision.target != fleet.target:
            reason = "; ".join(decision.reasons)
            self.replay.events.append(Event(self._timeline.now, name, fleet.target, decision.target, reason))
            fleet.ask(decision.target)

    def _note(self) -> None:
        now_s, verifiers = self._timeline.now, self._verifiers.running
        rate = next(p.requests_per_s for p in reversed(self._points) if p.time_s <= now_s)
        running = sum(one.running for one in verifiers)
        waiting = sum(len(one.waiting) for one in verifiers)
        latest = [one.totals.ttft_ms[-1][1] for one in verifiers if one.totals.ttft_ms]
        ttft_ms = sum(latest) / max(1, len(latest))
        targets = (self._verifiers.target, len(verifiers), self._drafters.target, len(self._drafters.running))
        self.replay.rows.append(Row(now_s, rate, running, waiting, ttft_ms, math.nan, *targets))  # needed: not known

    def _report(self) -> None:
        self._reported_s = self._timeline.now
        self._reports = (
            tuple(self._verifier_signals(one) for one in self._verifiers.running),
            tuple(self._drafter_signals(one) for one in self._drafters.running),
        )

    def _window(self, name: str, values: tuple[float, ...]) -> tuple[float, list[float]]:
        """Seconds that it is long, and what came in it."""
        now_s = self._timeline.now
        history = self._history.setdefault(name, deque([(now_s, *(0.0 for _ in values))]))
        history.append((now_s, *values))
        while len(history) > 2 and history[1][0] <= now_s - WINDOW_S:
            history.popleft()
        first = history[0]
        return now_s - first[0], [value - before for value, before in zip(values, first[1:], strict=True)]

    def _verifier_signals(self, one: SimulatedVerifier) -> VerifierSignals:
        totals = one.totals
        _, counted = self._window(one.record.replica_id, tuple(getattr(totals, name) for name in COUNTED))
        arrived, finished, refused, nodes, trees, accepted = counted
        since = self._timeline.now - WINDOW_S
        ttft_ms = sorted(ms for time_s, ms in totals.ttft_ms if time_s >= since)
        return VerifierSignals(
            age_s=0.0,
            running=one.running,
            waiting=len(one.waiting),
            seats=self._settings.verifier.seats,
            kv_usage=1.0 - one.cache.free / one.cache.capacity,
            arrived=arrived,
            finished=finished,
            refused=refused,
            ttft_ms=ttft_ms[int(0.95 * len(ttft_ms))] if ttft_ms else None,
            demanded_nodes=nodes,
            delivered_nodes=nodes,
            proposals=trees,
            trees=trees,
            accepted=accepted,
        )

    def _drafter_signals(self, one: SimulatedDrafter) -> DrafterSignals:
        length_s, (busy_s,) = self._window(one.record.replica_id, (one.busy_until(self._timeline.now),))
        busy = busy_s / length_s if length_s > 0 else one.busy
        return DrafterSignals(0.0, one.sessions, self._settings.drafter.max_sessions, min(1.0, busy))


def _view(
    fleet: Fleet[SimulatedVerifier] | Fleet[SimulatedDrafter],
    bounds: ScalingBounds,
    signals: tuple[VerifierSignals, ...] | tuple[DrafterSignals, ...],
) -> PoolView:
    return PoolView(len(fleet.running), fleet.target, bounds.minimum, bounds.maximum, signals)
