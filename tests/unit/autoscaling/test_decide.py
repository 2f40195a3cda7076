"""What the decision does with each signal, and what it never does whatever the signals are."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.autoscaling.decide import decide
from cluster.autoscaling.snapshot import PoolState, PoolView, State
from cluster.config.autoscaling import AutoscalingSettings
from tests.unit.autoscaling.pools import AT_ONCE, NOW_S, decided, drafter, pool, quick, snapshot, verifier


def verifier_target(signals: Any, settings: AutoscalingSettings | None = None, **more: Any) -> int:
    decision = decided(pool(signals, **more), settings=settings).verifiers
    assert decision is not None
    return decision.target


def reasons(verifiers: PoolView, settings: AutoscalingSettings | None = None) -> str:
    decision = decided(verifiers, settings=settings).verifiers
    assert decision is not None
    return "; ".join(decision.reasons)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        (verifier(running=24), 4),  # 4 * 24 / (32 * 0.75)
        (verifier(running=25), 4),  # within the tolerance
        (verifier(running=32), 6),
        (verifier(running=6), 2),  # one would be just full enough, and fuller ones are slower
        (verifier(running=5), 1),
        (verifier(running=0, kv_usage=0.0), 1),
        (verifier(running=12, kv_usage=0.99), 5),  # memory, not seats
        (verifier(running=32, waiting=20), 7),  # seats are full and a quarter of them waits
        (verifier(running=32, waiting=20, arrived=60, finished=30), 9),  # the flow says how many
        (verifier(running=32, waiting=20, arrived=30, finished=30), 6),
        (verifier(running=32, waiting=20, arrived=30, finished=30, refused=1), 7),  # more than can be seen
        (verifier(running=32, waiting=20, arrived=30, finished=60), 4),  # full, but the queue drains
    ],
)
def test_verifiers_by_load(signals: Any, expected: int) -> None:
    assert verifier_target(signals) == expected


def test_verifiers_by_latency() -> None:
    itl = quick(verifiers={"target_itl_ms": 50, "target_ttft_ms": 1000})
    assert verifier_target(verifier(running=20, itl_ms=100, ttft_ms=500), itl) == 8
    assert verifier_target(verifier(running=20, itl_ms=20, ttft_ms=1500), itl) == 6
    assert verifier_target(verifier(running=20, itl_ms=20, ttft_ms=100), itl) == 4
    # An idle verifier gets no faster: 4 * 4 requests keep two replicas a quarter full, and three less.
    assert verifier_target(verifier(running=4, itl_ms=500), itl) == 3
    assert "would lie idle" in reasons(pool(verifier(running=4, itl_ms=500)), itl)
    # No request, no latency.
    assert verifier_target(verifier(running=20, itl_ms=None, ttft_ms=None), itl) == 4


def test_latencies_wait_until_replicas_have_started_and_settled() -> None:
    itl = quick(verifiers={"target_itl_ms": 50})
    slow = verifier(running=20, itl_ms=100)
    assert verifier_target(slow, itl, target=6) == 6
    fresh = State(PoolState(ready=4, ready_since_s=NOW_S - 59), PoolState())
    decision = decided(pool(slow), settings=itl, state=fresh).verifiers
    assert decision is not None
    assert decision.target == 4
    drained = State(PoolState(ready=4, ready_since_s=0.0, drained_s=NOW_S - 59), PoolState())
    decision = decided(pool(slow), settings=itl, state=drained).verifiers
    assert decision is not None
    assert decision.target == 4


def test_what_is_starting_is_not_asked_for_twice() -> None:
    """Running requests need 8 replicas, of which 4 are on their way."""
    assert verifier_target(verifier(running=32, waiting=20, arrived=60, finished=30), target=8) == 8


def test_nothing_known_holds() -> None:
    old = [verifier(running=0, age_s=31)] * 4
    assert verifier_target(old) == 4
    assert "holds: signals of 4 replicas are missing or stale" in reasons(pool(old))
    assert verifier_target([]) == 4
    assert verifier_target([], current=0, target=3) == 3
    assert "no replica runs yet" in reasons(pool([], current=0, target=3))


def test_missing_signals_never_shrink_but_may_grow_a_pool() -> None:
    idle, busy, old = verifier(running=0, kv_usage=0.0), verifier(running=32, waiting=2), verifier(age_s=31)
    assert verifier_target([idle, idle, idle, old]) == 4
    assert "no step down" in reasons(pool([idle, idle, idle, old]))
    assert verifier_target([busy, busy, busy, busy, old], current=5) == 6
    # In a large pool the missing count as fully used.
    assert verifier_target([idle] * 19 + [old], current=20) == 2
    assert verifier_target([idle] * 17 + [old] * 3, current=20) == 20
    assert "counted as fully used" in reasons(pool([idle] * 19 + [old], current=20))


def test_windows_periods_and_step_limits() -> None:
    up = {"window_s": 10, "period_s": 30, "max_replicas": 1, "max_percent": 50}
    down = {"window_s": 20, "period_s": 40, "max_replicas": 1, "max_percent": 25}
    settings = AutoscalingSettings.model_validate({"verifiers": {"up": up, "down": down, "settle_s": 0}})

    def run(signals: Any, target: int, seconds: range, state: State) -> tuple[list[tuple[int, int]], int, State]:
        changes = []
        for second in seconds:
            view = pool([signals] * target, target)
            decision = decide(snapshot(float(second), view), settings, state)
            state = decision.state
            assert decision.verifiers is not None
            if decision.verifiers.target != target:
                target = decision.verifiers.target
                changes.append((second, target))
        return changes, target, state

    changes, target, state = run(verifier(running=32, waiting=2), 4, range(80), State())
    assert changes == [(10, 6), (40, 9), (70, 13)]
    changes, target, _ = run(verifier(running=2), target, range(80, 180), state)
    assert changes == [(100, 10), (140, 8)]


def test_a_dip_restarts_the_window() -> None:
    settings = AutoscalingSettings.model_validate({"verifiers": {"up": {**AT_ONCE, "window_s": 10}}})
    state, targets = State(), []
    for second in range(30):
        signals = verifier(running=24 if second == 9 else 32)
        decision = decide(snapshot(float(second), pool(signals)), settings, state)
        state = decision.state
        assert decision.verifiers is not None
        targets.append(decision.verifiers.target)
    assert targets.index(6) == 20


def test_a_moment_in_which_no_whole_replica_was_too_many_does_not_count_for_ever() -> None:
    settings = AutoscalingSettings.model_validate({"verifiers": {"down": {**AT_ONCE, "window_s": 10}}})
    state, targets = State(), []
    for second in range(30):
        signals = verifier(running=20 if second < 5 else 0, kv_usage=0.0)  # 1.67 of 2 are needed, then none
        decision = decide(snapshot(float(second), pool(signals, 2)), settings, state)
        state = decision.state
        assert decision.verifiers is not None
        targets.append(decision.verifiers.target)
    assert targets.index(1) == 15


def test_dry_run_says_it_and_does_nothing() -> None:
    dry = quick(dry_run=True, drafters_per_verifier={"min": 10})
    decision = decided(pool(verifier(running=32)), pool(drafter(busy=1.0)), dry)
    assert decision.verifiers is not None
    assert decision.drafters is not None
    assert (decision.verifiers.target, decision.verifiers.proposed) == (4, 6)
    assert (decision.drafters.target, decision.drafters.proposed) == (4, 60)


def test_a_pool_that_is_not_there_is_not_decided() -> None:
    decision = decided(None, pool(drafter(sessions=64)))
    assert decision.verifiers is None
    assert decision.drafters is not None
    assert decision.drafters.target == 6


# Whatever the signals are

amounts = st.floats(0, 1e6, allow_nan=False)
shares = st.floats(0, 1)
latencies = st.one_of(st.none(), st.floats(0, 1e6))
verifiers_any = st.builds(
    verifier,
    age_s=st.floats(0, 60),
    running=amounts,
    waiting=amounts,
    seats=st.floats(1, 4096),
    kv_usage=shares,
    arrived=amounts,
    finished=amounts,
    refused=amounts,
    ttft_ms=latencies,
    itl_ms=latencies,
    demanded_nodes=amounts,
    delivered_nodes=amounts,
    proposals=amounts,
    late=amounts,
    trees=amounts,
    accepted=amounts,
)
drafters_any = st.builds(
    drafter, age_s=st.floats(0, 60), sessions=amounts, max_sessions=st.floats(1, 4096), busy=shares
)


def pools_of(signals: st.SearchStrategy[Any]) -> st.SearchStrategy[PoolView]:
    counts = st.tuples(st.integers(0, 12), st.integers(0, 30), st.integers(1, 15), st.integers(0, 15))
    return st.builds(
        lambda replicas, c: PoolView(c[0], c[1], c[2], c[2] + c[3], tuple(replicas)),
        st.lists(signals, max_size=6),
        counts,
    )


settings_any = st.builds(
    lambda dry, least, most, down, ttft: AutoscalingSettings.model_validate(
        {
            "dry_run": dry,
            "drafters_per_verifier": {"min": least, "max": least + most},
            "verifiers": {
                "down": {**AT_ONCE, "window_s": down},
                "up": {**AT_ONCE, "window_s": 2},
                "target_ttft_ms": ttft,
            },
            "drafters": {"down": AT_ONCE},
        }
    ),
    st.booleans(),
    st.floats(0, 3),
    st.floats(0.1, 3),
    st.floats(0, 5),
    st.one_of(st.none(), st.floats(1, 1e4)),
)
histories = st.lists(
    st.tuples(st.floats(0, 100), pools_of(verifiers_any), pools_of(drafters_any)), min_size=1, max_size=8
)


@given(histories, settings_any)
@settings(max_examples=80, deadline=None)
def test_always_within_bounds_dry_runs_change_nothing_and_it_is_deterministic(
    history: list[tuple[float, PoolView, PoolView]], chosen: AutoscalingSettings
) -> None:
    state, now_s = State(), 0.0
    for passed_s, verifiers, drafters in history:
        now_s += passed_s
        view = snapshot(now_s, verifiers, drafters)
        decision = decide(view, chosen, state)
        assert decision == decide(view, chosen, state)
        state = decision.state
        for before, after in ((verifiers, decision.verifiers), (drafters, decision.drafters)):
            assert after is not None
            assert before.min_replicas <= after.proposed <= before.max_replicas
            assert after.target == (before.target if chosen.dry_run else after.proposed)
            assert after.reasons


@given(histories, settings_any)
@settings(max_examples=80, deadline=None)
def test_missing_or_stale_signals_never_shrink_a_pool(
    history: list[tuple[float, PoolView, PoolView]], chosen: AutoscalingSettings
) -> None:
    state, now_s = State(), 0.0
    for passed_s, verifiers, drafters in history:
        now_s += passed_s
        decision = decide(snapshot(now_s, verifiers, drafters), chosen, state)
        state = decision.state
        for before, after in ((verifiers, decision.verifiers), (drafters, decision.drafters)):
            assert after is not None
            fresh = sum(one.age_s <= chosen.stale_after_s for one in before.replicas)
            if before.current - fresh > chosen.max_missing_share * before.current or not fresh:
                held = max(before.min_replicas, min(before.max_replicas, before.target))
                assert after.proposed >= held
                assert fresh or after.proposed == held or "for each of" in after.reasons[-1]


more_load: list[Callable[[float], dict[str, float]]] = [
    lambda x: {"running": 40 * x},
    lambda x: {"running": 16 + 8 * x, "waiting": 80 * x},
    lambda x: {"kv_usage": min(1.0, x)},
    lambda x: {"running": 32, "waiting": 40, "finished": 100, "arrived": 400 * x},
    lambda x: {"ttft_ms": 4000 * x},
    lambda x: {"itl_ms": 400 * x},
]


@pytest.mark.parametrize("load", more_load)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_more_load_never_means_fewer_verifiers(
    load: Callable[[float], dict[str, float]], a: float, b: float, count: int
) -> None:
    low, high = sorted((a, b))
    chosen = quick(verifiers={"target_ttft_ms": 1000, "target_itl_ms": 100, "tolerance": 0})
    few = verifier_target(verifier(**load(low)), chosen, current=count)
    many = verifier_target(verifier(**load(high)), chosen, current=count)
    assert few <= many


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_more_work_never_means_fewer_drafters(a: float, b: float, count: int) -> None:
    low, high = sorted((a, b))

    def target(x: float) -> int:
        above = pool(verifier(demanded_nodes=1000, delivered_nodes=1000 * (1 - x), proposals=100, late=100 * x))
        view = pool(drafter(busy=x, sessions=64 * x), count)
        decision = decided(above, view, quick(drafters={"tolerance": 0})).drafters
        assert decision is not None
        return decision.target

    assert target(low) <= target(high)
