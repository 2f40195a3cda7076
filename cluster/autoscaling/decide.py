"""How many replicas each pool should have: a pure function of a snapshot, settings and the state of the last call.

Order: the largest wish of a pool's signals (`wishes`), hysteresis, windows and step limits (`steps`), the bounds on
drafters per verifier, and last the pool's own bounds, which always hold. The clock is part of the snapshot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cluster.autoscaling.drafting import drafter_wishes, drafting_pays
from cluster.autoscaling.snapshot import (
    Decision,
    DrafterSignals,
    PoolDecision,
    PoolState,
    PoolView,
    Snapshot,
    State,
    VerifierSignals,
)
from cluster.autoscaling.steps import Step, bounded, observe, take_step
from cluster.autoscaling.wishes import Ground, Load, Wish, verifier_wishes
from cluster.config.autoscaling import AutoscalingSettings, PoolScaling, RatioBounds

__all__ = ["decide"]

Signals = TypeVar("Signals", VerifierSignals, DrafterSignals)


@dataclass(frozen=True)
class _Missing:
    """Running replicas without fresh signals."""

    count: int
    too_many: bool

    @property
    def text(self) -> str:
        return f"signals of {self.count} replicas are missing or stale" if self.count else ""


def decide(snapshot: Snapshot, settings: AutoscalingSettings, state: State) -> Decision:
    """Call it with the state of the call before (`State()` at first) and a clock that does not go back."""
    now_s = snapshot.now_s
    verifiers = drafters = None
    if snapshot.verifiers is not None:
        verifiers, pool_state = _verifiers(snapshot.verifiers, settings, state.verifiers, now_s)
        state = replace(state, verifiers=pool_state)
    if snapshot.drafters is not None:
        pool_state = replace(state.drafters, drained_s=state.verifiers.drained_s)
        drafters, pool_state = _drafters(snapshot, verifiers, settings, pool_state)
        state = replace(state, drafters=pool_state)
    return Decision(verifiers, drafters, state)


def _verifiers(
    pool: PoolView, settings: AutoscalingSettings, state: PoolState, now_s: float
) -> tuple[PoolDecision, PoolState]:
    scaling = settings.verifiers
    state = observe(pool, state, now_s)
    fresh = _fresh(pool, VerifierSignals, settings)
    missing = _missing(pool, len(fresh), settings)
    if not fresh:
        return _held(pool, state, missing, settings)
    load = Load.of(fresh, scaling)
    if load.draining:
        state = replace(state, drained_s=now_s)
    wishes = verifier_wishes(fresh, load, scaling, _ground(pool, state, scaling, len(fresh), now_s))
    return _stepped(pool, state, scaling, wishes, missing, settings, now_s)


def _drafters(
    snapshot: Snapshot, verifiers: PoolDecision | None, settings: AutoscalingSettings, state: PoolState
) -> tuple[PoolDecision, PoolState]:
    pool, now_s, scaling = snapshot.drafters, snapshot.now_s, settings.drafters
    assert pool is not None  # noqa: S101  # the caller looked
    state = observe(pool, state, now_s)
    fresh = _fresh(pool, DrafterSignals, settings)
    missing = _missing(pool, len(fresh), settings)
    if not fresh:
        return _held(pool, state, missing, settings)
    above = _fresh(snapshot.verifiers, VerifierSignals, settings) if snapshot.verifiers is not None else []
    ground = _ground(pool, state, scaling, len(fresh), now_s)
    ease = Load.of(above, settings.verifiers).ease(ground) if above else 1.0
    wishes, known = drafter_wishes(fresh, above, scaling, ground, state.carried, now_s, ease)
    pays, why = drafting_pays(above, scaling, state.pays)
    state = replace(state, pays=pays, carried=known)
    if not pays:
        wishes = {"acceptance": Wish(0.0, f"drafting does not pay: {why}")}
    decision, state = _stepped(pool, state, scaling, wishes, missing, settings, now_s)
    if snapshot.verifiers is None or verifiers is None:
        return decision, state
    proposed, reason = _in_ratio(decision, verifiers, snapshot.verifiers, settings.drafters_per_verifier)
    if missing.too_many:
        proposed = max(proposed, pool.target)
    proposed = bounded(proposed, pool)
    if proposed == decision.proposed:
        return decision, state
    return _answer(pool, proposed, wishes, (*decision.reasons, reason), settings), state


def _in_ratio(decision: PoolDecision, verifiers: PoolDecision, pool: PoolView, ratio: RatioBounds) -> tuple[int, str]:
    """`decision.proposed` within the bounds per verifier: those that are to come count, those that are to go too."""
    least = math.ceil(ratio.min * verifiers.proposed)
    if decision.proposed < least:
        return least, f"at least {ratio.min:g} for each of {verifiers.proposed} verifiers"
    if ratio.max is not None:
        upper = max(verifiers.proposed, pool.current)
        most = max(math.floor(ratio.max * upper), least)
        if decision.proposed > most:
            return most, f"at most {ratio.max:g} for each of {upper} verifiers"
    return decision.proposed, ""


def _fresh(pool: PoolView, kind: type[Signals], settings: AutoscalingSettings) -> list[Signals]:
    limit = settings.stale_after_s
    return [one for one in pool.replicas if isinstance(one, kind) and one.age_s <= limit]


def _missing(pool: PoolView, fresh: int, settings: AutoscalingSettings) -> _Missing:
    count = max(0, pool.current - fresh)
    return _Missing(count, fresh == 0 or count > settings.max_missing_share * pool.current)


def _ground(pool: PoolView, state: PoolState, scaling: PoolScaling, fresh: int, now_s: float) -> Ground:
    settled = state.ready_since_s is not None and now_s - state.ready_since_s >= scaling.settle_s
    calm = state.drained_s is None or now_s - state.drained_s >= scaling.settle_s
    return Ground(fresh, pool.target, settled=settled, starting=pool.target > pool.current, calm=calm)


def _held(
    pool: PoolView, state: PoolState, missing: _Missing, settings: AutoscalingSettings
) -> tuple[PoolDecision, PoolState]:
    """Nothing is known: keep what there is."""
    why = missing.text or "no replica runs yet"
    state = replace(state, up_since_s=None, down_since_s=None)
    return _answer(pool, bounded(pool.target, pool), {}, (f"holds: {why}",), settings), state


def _stepped(
    pool: PoolView,
    state: PoolState,
    scaling: PoolScaling,
    wishes: dict[str, Wish],
    missing: _Missing,
    settings: AutoscalingSettings,
    now_s: float,
) -> tuple[PoolDecision, PoolState]:
    name = max(wishes, key=lambda one: wishes[one].replicas)
    best = wishes[name]
    step: Step = take_step(
        pool, state, scaling, best.replicas, None if missing.too_many else best.replicas + missing.count, now_s
    )
    reasons = [f"{name} asks for {best.replicas:.2f} ({best.why}); {step.reason}"]
    if missing.count:
        reasons.append(f"{missing.text}: {'no step down' if missing.too_many else 'counted as fully used'}")
    return _answer(pool, step.replicas, wishes, tuple(reasons), settings), step.state


def _answer(
    pool: PoolView,
    proposed: int,
    wishes: dict[str, Wish],
    reasons: Sequence[str],
    settings: AutoscalingSettings,
) -> PoolDecision:
    return PoolDecision(
        target=pool.target if settings.dry_run else proposed,
        proposed=proposed,
        wishes={name: wish.replicas for name, wish in wishes.items()},
        reasons=tuple(reasons),
    )
