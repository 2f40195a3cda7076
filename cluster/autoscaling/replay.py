"""Runs a load through the model of a cluster and lets the policy decide; what came of it, as numbers."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from cluster.autoscaling.decide import decide
from cluster.autoscaling.model import ClusterModel, Flow, ReplayModel
from cluster.autoscaling.snapshot import PoolDecision, State
from cluster.autoscaling.trace import LoadPoint
from cluster.config.autoscaling import AutoscalingSettings

__all__ = ["Event", "PoolBounds", "PoolSummary", "Replay", "Row", "replay"]

STEP_S = 1.0


@dataclass(frozen=True)
class PoolBounds:
    """Of one pool; `initial` None: as many as `minimum`."""

    minimum: int
    maximum: int
    initial: int | None = None

    @property
    def first(self) -> int:
        return self.minimum if self.initial is None else self.initial


@dataclass(frozen=True)
class Row:
    """One second."""

    time_s: float
    requests_per_s: float
    running: float
    waiting: float
    ttft_ms: float
    needed: float  # verifiers for this load, if it stayed
    verifier_target: int
    verifiers: int
    drafter_target: int
    drafters: int


@dataclass(frozen=True)
class Event:
    """A change of a target; under dry_run a change that would have been."""

    time_s: float
    pool: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True)
class PoolSummary:
    """One pool over the whole replay."""

    pool: str
    replica_s: float  # targets are paid for from the decision on
    most: int
    last: int
    ups: int
    downs: int
    reversals: int  # changes of direction


@dataclass
class Replay:
    """The result."""

    rows: list[Row] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requests: float = 0.0
    refused: float = 0.0
    violations: float = 0.0  # requests whose first token came later than slo_ttft_ms
    most_needed: float = 0.0  # verifiers

    @property
    def overshoot(self) -> float:
        """The most verifiers that were asked for beyond the most that were needed, as a share of these."""
        needed = max(1, math.ceil(self.most_needed - 1e-9))
        return max((row.verifier_target for row in self.rows), default=0) / needed - 1

    def pools(self) -> list[PoolSummary]:
        targets = {
            "verifiers": [row.verifier_target for row in self.rows],
            "drafters": [row.drafter_target for row in self.rows],
        }
        return [_summary(pool, values, self.events) for pool, values in targets.items() if max(values, default=0)]

    def to_json(self) -> dict[str, Any]:
        totals = {
            "requests": self.requests,
            "refused": self.refused,
            "violations": self.violations,
            "most_needed": self.most_needed,
            "overshoot": self.overshoot,
        }
        return {
            **totals,
            "pools": [asdict(one) for one in self.pools()],
            "events": [asdict(one) for one in self.events],
            "rows": [asdict(one) for one in self.rows],
        }


def replay(
    trace: Sequence[LoadPoint],
    settings: AutoscalingSettings,
    model: ReplayModel,
    verifiers: PoolBounds,
    drafters: PoolBounds | None,
) -> Replay:
    """Deterministic. `trace` as `read_trace` returns it; `drafters` None: there is no such pool."""
    cluster = ClusterModel(model, verifiers.first, drafters.first if drafters else None)
    state, result = State(), Replay()
    proposed = {"verifiers": verifiers.first, "drafters": drafters.first if drafters else 0}
    verifier_bounds = (verifiers.minimum, verifiers.maximum)
    drafter_bounds = (drafters.minimum, drafters.maximum) if drafters else (0, 0)
    start_s, next_s = trace[0].time_s, 0.0
    for point, following in pairwise(trace):
        while cluster.now_s < following.time_s - start_s - 1e-9:
            step_s = min(STEP_S, following.time_s - start_s - cluster.now_s)
            flow = cluster.advance(step_s, point.requests_per_s, point.accepted_per_tree)
            if cluster.now_s >= next_s - 1e-9:
                next_s = cluster.now_s + settings.interval_s
                decision = decide(cluster.snapshot(verifier_bounds, drafter_bounds), settings, state)
                state = decision.state
                for name, one, pool in (
                    ("verifiers", decision.verifiers, cluster.verifiers),
                    ("drafters", decision.drafters, cluster.drafters),
                ):
                    if one is not None and pool is not None:
                        _note(result, name, one, proposed, cluster.now_s + start_s)
                        pool.ask(one.target, cluster.now_s)
            _count(result, cluster, flow, point.requests_per_s, settings, cluster.now_s + start_s)
    return result


def _note(result: Replay, name: str, one: PoolDecision, proposed: dict[str, int], time_s: float) -> None:
    if one.proposed != proposed[name]:
        result.events.append(Event(time_s, name, proposed[name], one.proposed, "; ".join(one.reasons)))
        proposed[name] = one.proposed


def _count(
    result: Replay, cluster: ClusterModel, flow: Flow, rate: float, settings: AutoscalingSettings, time_s: float
) -> None:
    model = cluster.model
    needed = model.needed(rate, settings.verifiers.target_utilization)
    result.requests += flow.arrived + flow.refused
    result.refused += flow.refused
    result.violations += flow.admitted if flow.ttft_ms > model.slo_ttft_ms else 0.0
    result.most_needed = max(result.most_needed, needed)
    drafters = cluster.drafters
    result.rows.append(
        Row(
            time_s=time_s,
            requests_per_s=rate,
            running=cluster.running,
            waiting=cluster.waiting,
            ttft_ms=flow.ttft_ms,
            needed=needed,
            verifier_target=cluster.verifiers.target,
            verifiers=cluster.verifiers.running,
            drafter_target=drafters.target if drafters else 0,
            drafters=drafters.running if drafters else 0,
        )
    )


def _summary(pool: str, targets: Sequence[int], events: Sequence[Event]) -> PoolSummary:
    changes = [event.after - event.before for event in events if event.pool == pool]
    return PoolSummary(
        pool=pool,
        replica_s=STEP_S * sum(targets),
        most=max(targets),
        last=targets[-1],
        ups=sum(change > 0 for change in changes),
        downs=sum(change < 0 for change in changes),
        reversals=sum((a > 0) != (b > 0) for a, b in pairwise(changes)),
    )
