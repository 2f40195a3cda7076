"""Snapshots for tests, pools of equal replicas, and what is decided for them."""

from typing import Any

from cluster.autoscaling.decide import decide
from cluster.autoscaling.snapshot import (
    Decision,
    DrafterSignals,
    PoolState,
    PoolView,
    Snapshot,
    State,
    VerifierSignals,
)
from cluster.config.autoscaling import AutoscalingSettings

__all__ = ["AT_ONCE", "NOW_S", "SEATS", "SETTLED", "decided", "drafter", "pool", "quick", "snapshot", "verifier"]

SEATS = 32
NOW_S = 1000.0
SETTLED = PoolState(ready=4, ready_since_s=0.0)
AT_ONCE = {"window_s": 0, "period_s": 0, "max_replicas": 1000, "max_percent": 100}


def verifier(**values: Any) -> VerifierSignals:
    """At half of its seats unless `values` say otherwise."""
    return VerifierSignals(**{"age_s": 0.0, "running": 16, "waiting": 0, "seats": SEATS, "kv_usage": 0.1, **values})


def drafter(**values: Any) -> DrafterSignals:
    return DrafterSignals(**{"age_s": 0.0, "sessions": 16, "max_sessions": 64, "busy": 0.4, **values})


def pool(signals: Any, current: int = 4, *, target: int | None = None, low: int = 1, high: int = 100) -> PoolView:
    """`signals`: of one replica, the same for all; or a sequence of them."""
    replicas = tuple(signals) if isinstance(signals, (list, tuple)) else (signals,) * current
    return PoolView(current, current if target is None else target, low, high, replicas)


def snapshot(now_s: float, verifiers: PoolView | None, drafters: PoolView | None = None) -> Snapshot:
    return Snapshot(now_s, verifiers, drafters)


def quick(**more: Any) -> AutoscalingSettings:
    """Without windows and step limits: what is wanted is done."""
    verifiers = {"up": AT_ONCE, "down": AT_ONCE, **more.pop("verifiers", {})}
    drafters = {"up": AT_ONCE, "down": AT_ONCE, **more.pop("drafters", {})}
    return AutoscalingSettings.model_validate({"verifiers": verifiers, "drafters": drafters, **more})


def decided(
    verifiers: PoolView | None,
    drafters: PoolView | None = None,
    settings: AutoscalingSettings | None = None,
    state: State | None = None,
) -> Decision:
    state = state or State(SETTLED, SETTLED)
    return decide(snapshot(NOW_S, verifiers, drafters), settings or quick(), state)
