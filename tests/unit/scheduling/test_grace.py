"""When a step may wait for proposals: properties of the pure rule."""

from hypothesis import given
from hypothesis import strategies as st

from workers.scheduling.grace import StepEstimates, grace_ms
from workers.scheduling.step_clock import StepClock

positive = st.floats(0.1, 1000.0)
forced = st.lists(st.sampled_from([True, False, None]), max_size=6)


@given(forced, positive, positive, st.floats(1.0, 6.0), st.floats(0.0, 500.0))
def test_bounded_and_zero_without_hope(
    flags: list[bool | None], plain: float, tree: float, length: float, limit: float
) -> None:
    wait = grace_ms(flags, StepEstimates(plain, tree, length), limit)
    assert 0.0 <= wait <= limit
    if all(flag is None for flag in flags):
        assert wait == 0.0


@given(positive, positive, st.floats(1.0, 6.0))
def test_waiting_the_whole_grace_never_loses(plain: float, tree: float, length: float) -> None:
    wait = grace_ms([False], StepEstimates(plain, tree, length), 1e9)
    assert wait == 0.0 or length / (wait + tree) >= (1.0 - 1e-9) / plain


def test_a_request_that_cannot_gain_shortens_the_wait_of_all() -> None:
    estimates = StepEstimates(plain_step_ms=30.0, tree_step_ms=40.0, acceptance_length=3.0)
    assert grace_ms([False], estimates, 1e9) == 50.0
    assert grace_ms([False, None], estimates, 1e9) == 25.0


def test_forced_speculation_waits_as_long_as_the_server_allows() -> None:
    assert grace_ms([None, True], StepEstimates(1.0, 100.0, 1.0), 200.0) == 200.0


def test_the_clock_follows_what_it_measures() -> None:
    clock = StepClock()
    assert clock.estimates.acceptance_length == 2.0
    for _ in range(200):
        clock.record(30.0, 1, 0, 1)
        clock.record(45.0, 2, 16, 6)
    estimates = clock.estimates
    assert (round(estimates.plain_step_ms), round(estimates.tree_step_ms)) == (30, 45)
    assert round(estimates.acceptance_length, 2) == 3.0
