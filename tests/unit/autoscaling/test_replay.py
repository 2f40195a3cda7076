"""Loads through the model of a cluster: the policy gets there, stays there, and does not swing."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.autoscaling.model import ClusterModel, ReplayModel
from cluster.autoscaling.replay import PoolBounds, Replay, replay
from cluster.autoscaling.trace import LoadPoint, synthesize
from cluster.config.autoscaling import AutoscalingSettings

SLOW_DECISIONS = {"interval_s": 5.0}  # a fifth of the work, and the windows are longer


def run(
    trace: list[LoadPoint], *, first: int, model: dict[str, Any] | None = None, high: int = 400, **policy: Any
) -> Replay:
    chosen = AutoscalingSettings.model_validate(SLOW_DECISIONS | policy)
    bounds = PoolBounds(1, high, first), PoolBounds(1, 4 * high, 2 * first)
    return replay(trace, chosen, ReplayModel.model_validate(model or {}), *bounds)


def constant(rate: float, duration_s: float = 1800.0) -> list[LoadPoint]:
    return [LoadPoint(0.0, rate), LoadPoint(duration_s, rate)]


def reversals(result: Replay) -> dict[str, int]:
    return {pool.pool: pool.reversals for pool in result.pools()}


@given(st.floats(0.2, 40.0), st.integers(1, 30))
@settings(max_examples=12, deadline=None)
def test_constant_load_ends_at_one_number(rate: float, first: int) -> None:
    """From any number of replicas, and then nothing changes for ten minutes."""
    result = run(constant(rate, 3600.0), first=first, verifiers={"down": QUICK_DOWN}, drafters={"down": QUICK_DOWN})
    last = result.rows[-600:]
    assert len({row.verifier_target for row in last}) == 1
    assert len({row.drafter_target for row in last}) == 1
    assert last[0].verifier_target >= result.most_needed * 0.9


QUICK_DOWN = {"window_s": 60, "period_s": 30, "max_replicas": 4, "max_percent": 50}


def test_a_step_down_that_is_undone_again_and_again_is_tried_less_and_less_often() -> None:
    """Replicas with a single seat that take three times as long when it is taken: three look enough when there are
    four, and are not."""
    model = {"service_s": 10.0, "slowdown": 2.0, "seats": 1, "verifier_start_s": 30.0}
    result = run(constant(0.1, 21_600.0), first=4, model=model)
    downs = [event.time_s for event in result.events if event.pool == "verifiers" and event.after < event.before]
    pauses = [b - a for a, b in pairwise(downs)]
    assert pauses[0] < 1500.0, "the load swings"
    assert pauses == sorted(pauses)
    assert pauses[-1] > 3600.0


@pytest.mark.parametrize("start_s", [5.0, 120.0, 300.0])
@pytest.mark.parametrize("rate", [20.0, 60.0])
def test_a_load_step_is_followed_without_swinging(rate: float, start_s: float) -> None:
    """Three times the load; replicas take up to minutes to start, and those that are starting count."""
    model = ReplayModel.model_validate({"verifier_start_s": start_s})
    first = round(model.needed(rate, 0.75) + 0.5)
    trace = synthesize("step", base=rate, peak=3 * rate, duration_s=3600.0)
    result = run(trace, first=first, model={"verifier_start_s": start_s})
    assert result.overshoot <= 0.15
    assert reversals(result)["verifiers"] == 0
    assert (
        reversals(result)["drafters"] <= 2
    )  # down until what one carries is known, up with the load, the backlog done
    last = result.rows[-600:]
    assert {row.verifier_target for row in last} == {last[0].verifier_target}
    assert {row.drafter_target for row in last} == {last[0].drafter_target}
    assert 0.9 * result.most_needed <= last[0].verifier_target
    assert all(row.waiting == 0 for row in last)


def test_after_a_spike_it_comes_down_again() -> None:
    result = run(synthesize("spike", base=5.0, peak=15.0, duration_s=7200.0), first=3)
    assert max(row.verifier_target for row in result.rows) >= result.most_needed
    assert result.rows[-1].verifier_target <= 4
    assert reversals(result)["verifiers"] == 1


def test_a_day_goes_up_and_down_once() -> None:
    result = run(synthesize("diurnal", base=5.0, peak=50.0, duration_s=20_000.0), first=3)
    assert reversals(result) == {"verifiers": 1, "drafters": 2}  # these first shrink until what one carries is known
    assert result.refused == 0
    fixed = max(row.verifiers for row in result.rows) * result.rows[-1].time_s
    assert result.pools()[0].replica_s < 0.7 * fixed


def test_drafters_that_do_not_pay_go_to_their_floor() -> None:
    trace = [LoadPoint(0.0, 20.0, 2.0), LoadPoint(600.0, 20.0, 0.05), LoadPoint(3600.0, 20.0, 0.05)]
    result = run(trace, first=15, drafters={"down": QUICK_DOWN})
    assert result.rows[500].drafter_target > 10
    assert result.rows[-1].drafter_target == 1
    assert "does not pay" in result.events[-1].reason


def test_latency_targets_do_not_run_away() -> None:
    """More replicas cannot make an idle verifier faster than it is."""
    result = run(constant(5.0), first=3, model={"itl_ms": 100.0}, verifiers={"target_itl_ms": 50.0})
    assert max(row.verifier_target for row in result.rows) <= 8
    assert all(count <= 1 for count in reversals(result).values())


def test_dry_run_keeps_the_replicas_and_lists_what_would_have_been() -> None:
    result = run(synthesize("step", base=5.0, peak=15.0, duration_s=1800.0), first=4, dry_run=True)
    assert {(row.verifiers, row.verifier_target) for row in result.rows} == {(4, 4)}
    assert any(event.pool == "verifiers" and event.after > event.before for event in result.events)


def test_the_model_loses_no_request_and_starts_replicas_in_time() -> None:
    cluster = ClusterModel(ReplayModel(verifier_start_s=10.0, max_waiting=10), 2, None)
    cluster.verifiers.ask(4, 0.0)
    arrived = finished = refused = 0.0
    for second in range(1, 120):
        flow = cluster.advance(1.0, 20.0 if second < 60 else 0.0)
        arrived, finished, refused = arrived + flow.arrived, finished + flow.finished, refused + flow.refused
        assert cluster.verifiers.running == (2 if second < 10 else 4)
        assert cluster.running <= 32 * cluster.verifiers.running + 1e-9
    assert refused > 0
    assert arrived + refused == pytest.approx(20.0 * 59)
    assert arrived == pytest.approx(finished + cluster.running + cluster.waiting)
    assert cluster.snapshot((1, 8), (0, 0)).drafters is None


@pytest.mark.parametrize("rate", [0.5, 20.0])
def test_nobody_waited_longer_than_there_was_time(rate: float) -> None:
    model = ClusterModel(ReplayModel(prefill_ms=0.0), verifiers=1, drafters=None)
    for second in range(1, 200):
        flow = model.advance(1.0, rate)
        assert 0.0 <= flow.ttft_ms <= 1e3 * second
        assert rate > 1.0 or flow.ttft_ms == 0.0
    assert rate < 1.0 or flow.ttft_ms > 30e3


def test_replicas_that_are_given_up_before_they_start_never_run() -> None:
    cluster = ClusterModel(ReplayModel(verifier_start_s=10.0), 2, None)
    for target in (6, 3, 1):
        cluster.verifiers.ask(target, 0.0)
    cluster.advance(20.0, 0.0)
    assert (cluster.verifiers.running, cluster.verifiers.target) == (1, 1)


def test_a_replay_is_deterministic() -> None:
    trace = synthesize("ramp", base=5.0, peak=20.0, duration_s=900.0)
    assert run(trace, first=4).to_json() == run(trace, first=4).to_json()


def test_synthetic_loads_begin_and_end_as_they_should() -> None:
    for kind in ("step", "ramp", "spike", "diurnal"):
        points = synthesize(kind, base=1.0, peak=3.0, duration_s=600.0)  # type: ignore[arg-type]
        assert (points[0].time_s, points[-1].time_s) == (0.0, 600.0)
        assert points[0].requests_per_s == pytest.approx(1.0)
        assert max(point.requests_per_s for point in points) == pytest.approx(3.0)
        assert all(a.time_s < b.time_s for a, b in pairwise(points))
