"""When a step may wait for proposals: properties of the pure rule."""

from hypothesis import given
from hypothesis import strategies as st

from workers.scheduling.grace import Pending, grace_ms
from workers.scheduling.lateness import Lateness
from workers.scheduling.step_cost import ASSUMED_COST, StepCost, StepLoad

LOAD = StepLoad(rows=2, requests=2, context=100)
PENDING = st.builds(
    Pending,
    gain=st.floats(0.0, 5.0),
    nodes=st.integers(1, 16),
    due_ms=st.none() | st.floats(0.0, 500.0),
    spread_ms=st.floats(0.0, 100.0),
)


def cost(fixed_ms: float, row_ms: float) -> StepCost:
    return StepCost((fixed_ms, row_ms, *(0.0,) * (len(ASSUMED_COST.coefficients) - 2)))


@given(st.lists(PENDING, max_size=6), st.floats(1.0, 100.0), st.floats(0.0, 10.0), st.floats(0.0, 500.0))
def test_bounded_and_zero_without_hope(pending: list[Pending], fixed: float, row: float, limit: float) -> None:
    wait = grace_ms(2.0, LOAD, cost(fixed, row), pending, limit)
    assert 0.0 <= wait <= limit
    if not any(p.gain for p in pending):
        assert wait == 0.0


@given(PENDING, st.floats(1.0, 100.0), st.floats(0.0, 10.0))
def test_waiting_the_whole_grace_never_loses_if_the_proposal_comes(p: Pending, fixed: float, row: float) -> None:
    prices = cost(fixed, row)
    wait = grace_ms(2.0, LOAD, prices, [p], 1e9)
    if wait > 0.0:
        assert (2.0 + p.gain) / (wait + prices.ms(LOAD.with_rows(p.nodes))) >= 2.0 / prices.ms(LOAD) * (1 - 1e-9)


def test_it_waits_for_what_comes_soon_and_not_for_what_comes_late() -> None:
    prices = cost(30.0, 1.0)  # 32 ms for two tokens
    soon, late = Pending(1.5, 4, due_ms=5.0, spread_ms=2.0), Pending(1.5, 4, due_ms=80.0, spread_ms=2.0)
    assert grace_ms(2.0, LOAD, prices, [soon], 1e9) == 9.0
    assert grace_ms(2.0, LOAD, prices, [late], 1e9) == 0.0
    assert grace_ms(2.0, LOAD, prices, [late, soon], 1e9) == 9.0
    assert grace_ms(0.0, LOAD, prices, [soon], 1e9) == 0.0


def test_an_unknown_drafter_is_waited_for_up_to_break_even() -> None:
    assert grace_ms(1.0, StepLoad(1, 1, 0), cost(30.0, 0.0), [Pending(1.0, 4)], 1e9) == 30.0
    assert grace_ms(1.0, StepLoad(1, 1, 0), cost(30.0, 0.0), [Pending(1.0, 4)], 12.0) == 12.0


def test_lateness_follows_what_it_measures() -> None:
    lateness = Lateness()
    assert lateness.due_ms(5.0) is None
    for _ in range(100):
        lateness.record(40.0)
    assert lateness.deviation_ms < 0.1
    assert round(lateness.due_ms(10.0) or 0.0) == 30
    assert lateness.due_ms(100.0) == 0.0
