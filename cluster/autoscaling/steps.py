"""From a wish to a step: hysteresis, windows, step limits, bounds."""

import math
from dataclasses import dataclass, replace

from cluster.autoscaling.snapshot import Descent, Doubt, PoolState, PoolView
from cluster.config.autoscaling import DownLimits, PoolScaling, StepLimits

__all__ = ["Step", "bounded", "observe", "take_step"]

EPSILON = 1e-9  # 3.0000000000000004 replicas are three
READY_CHANGE = 0.05  # share of the running replicas whose coming or going is a change


@dataclass(frozen=True)
class Step:
    """`replicas` is within the pool's bounds."""

    replicas: int
    reason: str
    state: PoolState


def bounded(replicas: int, pool: PoolView) -> int:
    return max(pool.min_replicas, min(pool.max_replicas, replicas))


def observe(pool: PoolView, state: PoolState, now_s: float) -> PoolState:
    """Note since when the number of running replicas has been about the same."""
    changed = state.ready_since_s is None or abs(pool.current - state.ready) > READY_CHANGE * state.ready
    return replace(state, ready=pool.current, ready_since_s=now_s) if changed else state


def take_step(
    pool: PoolView, state: PoolState, scaling: PoolScaling, least: float, most: float | None, now_s: float
) -> Step:
    """`least`: replicas that the load asks for at least; `most`: the same if every missing replica were fully used.

    None for `most`: too many signals are missing to give anything up.
    """
    target = pool.target
    up = least > target * (1.0 + scaling.tolerance) + EPSILON
    if up:
        wanted = bounded(math.ceil(least - EPSILON), pool)
        return _up(pool, state, scaling, wanted, now_s)
    state = replace(state, up_since_s=None)
    if most is not None:
        # Fewer replicas are fuller, and fuller ones are slower: the wish will be larger then than it is now.
        wanted = bounded(math.ceil(most / (1.0 - scaling.tolerance) - EPSILON), pool)
        if wanted < target:
            return _down(pool, state, scaling, wanted, most, now_s)
    state = replace(state, down_since_s=None)
    return Step(bounded(target, pool), "within tolerance", state)


def _up(pool: PoolView, state: PoolState, scaling: PoolScaling, wanted: int, now_s: float) -> Step:
    """As far as was wanted all through the window."""
    target, limits = pool.target, scaling.up
    if wanted <= target:
        return Step(bounded(target, pool), "at the upper bound", replace(state, up_since_s=None, down_since_s=None))
    begun = state.up_since_s is not None and state.up_least > target  # the target may have moved meanwhile
    since = state.up_since_s if begun and state.up_since_s is not None else now_s
    least = min(wanted, state.up_least) if begun else wanted
    state = replace(state, up_since_s=since, up_least=least, down_since_s=None)
    if now_s - since < limits.window_s:
        return Step(bounded(target, pool), f"waits until more is wanted for {limits.window_s:g} s", state)
    if state.last_up_s is not None and now_s - state.last_up_s < limits.period_s:
        return Step(bounded(target, pool), f"waits {limits.period_s:g} s between two steps up", state)
    step = min(least, target + _largest(limits, target))
    state = replace(_after_up(state, scaling.down, least, now_s), up_since_s=None, last_up_s=now_s)
    return Step(bounded(step, pool), "up" if step == least else "up, as far as a step may go", state)


def _after_up(state: PoolState, limits: DownLimits, wanted: int, now_s: float) -> PoolState:
    """At a step up to `wanted`. One that only takes steps down back tells that their load needs more than it seems to
    (fewer replicas are slower); it is not believed again for a time that doubles each time."""
    descent, doubt = state.descent, state.doubt
    if descent is None or state.last_down_s is None or wanted > descent.start:  # more load asks for more than before
        return replace(state, descent=None)
    longest_s = max(limits.window_s, limits.max_window_s)
    if now_s - state.last_down_s > longest_s:
        return replace(state, descent=None, doubt=None)
    times = 1 if doubt is None else doubt.times + 1
    until_s = now_s + min(limits.window_s * 2.0 ** min(times, 30), longest_s)
    return replace(state, descent=None, doubt=Doubt(descent.wish, until_s, times))


def _down(pool: PoolView, state: PoolState, scaling: PoolScaling, wanted: int, wish: float, now_s: float) -> Step:
    """As far as was enough all through the window."""
    target, limits = pool.target, scaling.down
    begun = state.down_since_s is not None and state.down_most < target
    since = state.down_since_s if begun and state.down_since_s is not None else now_s
    most = max(wanted, state.down_most) if begun else wanted
    state = replace(state, down_since_s=since, down_most=most)
    if now_s - since < limits.window_s:
        return Step(bounded(target, pool), f"waits until less is enough for {limits.window_s:g} s", state)
    if state.last_down_s is not None and now_s - state.last_down_s < limits.period_s:
        return Step(bounded(target, pool), f"waits {limits.period_s:g} s between two steps down", state)
    doubt, descent = state.doubt, state.descent or Descent(target, wish)
    if doubt is not None and now_s < doubt.until_s and wish >= doubt.wish * (1.0 - scaling.tolerance) - EPSILON:
        why = f"waits {doubt.until_s - now_s:.0f} s: so little was not enough when it was tried"
        return Step(bounded(target, pool), why, state)
    step = max(most, target - _largest(limits, target))
    descent = replace(descent, wish=min(wish, descent.wish))
    state = replace(state, down_since_s=None, last_down_s=now_s, descent=descent)
    return Step(bounded(step, pool), "down" if step == most else "down, as far as a step may go", state)


def _largest(limits: StepLimits, target: int) -> int:
    return max(limits.max_replicas, int(target * limits.max_percent / 100.0))
