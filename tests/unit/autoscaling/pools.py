"""Snapshots for tests: pools of equal replicas."""

from typing import Any

from cluster.autoscaling.snapshot import DrafterSignals, PoolView, Snapshot, VerifierSignals

__all__ = ["SEATS", "drafter", "pool", "snapshot", "verifier"]

SEATS = 32


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
