"""The cost model: what it recovers, and that noise does not bend it."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.scheduling.step_cost import CostSample, StepLoad, fit_cost
from workers.scheduling.step_meter import StepMeter

loads = st.builds(StepLoad, st.integers(1, 700), st.integers(1, 64), st.integers(0, 50_000), st.booleans())


def true_ms(load: StepLoad, slow: float = 1.0) -> float:
    return slow * (40.0 + 2.0 * load.rows + 1.0 * load.requests + 5.0 * load.context / 1024 + 6.0 * load.drafting)


@given(st.lists(st.tuples(loads, st.floats(0.1, 1e4)), min_size=1, max_size=30), loads, st.integers(0, 40))
def test_more_work_never_costs_less_and_rows_never_get_cheaper(
    measured: list[tuple[StepLoad, float]], load: StepLoad, more: int
) -> None:
    cost = fit_cost(CostSample(*pair) for pair in measured)
    assert min(cost.coefficients) >= 0.0
    by_rows = cost.ms_by_rows(load, more)
    assert by_rows == pytest.approx([cost.ms(load.with_rows(i)) for i in range(more + 1)])
    steps = [b - a for a, b in pairwise(by_rows)]
    tolerance = 1e-9 * (1.0 + by_rows[-1])
    assert all(a <= b + tolerance for a, b in pairwise(steps))


def test_it_recovers_a_linear_machine() -> None:
    rng = random.Random(1)
    samples = [
        StepLoad(rng.randrange(1, 60), rng.randrange(1, 9), rng.randrange(9000), rng.random() < 0.5) for _ in range(80)
    ]
    cost = fit_cost(CostSample(load, true_ms(load)) for load in samples)
    for load in samples:
        assert cost.ms(load) == pytest.approx(true_ms(load), rel=0.02)


def steps(rng: random.Random, count: int) -> list[StepLoad]:
    return [StepLoad(rows, 1, 200, rows > 1) for _ in range(count) for rows in [rng.choice([1, 1, 6, 10, 17])]]


def test_a_busy_second_bends_nothing() -> None:
    rng = random.Random(2)
    meter = StepMeter()
    for load in steps(rng, 200):
        meter.record(load, true_ms(load) * rng.uniform(0.95, 1.05))
    before = meter.cost.ms(StepLoad(17, 1, 200, True)) / meter.cost.ms(StepLoad(1, 1, 200))
    for load in steps(rng, 20):  # the machine is twice as slow for a second
        meter.record(load, true_ms(load, slow=2.0))
        ratio = meter.cost.ms(StepLoad(17, 1, 200, True)) / meter.cost.ms(StepLoad(1, 1, 200))
        assert ratio == pytest.approx(before, rel=0.1)


def test_a_machine_that_stays_slow_is_believed() -> None:
    rng = random.Random(3)
    meter = StepMeter()
    for slow in (1.0, 2.0):
        for load in steps(rng, 300):
            meter.record(load, true_ms(load, slow))
        assert meter.cost.ms(StepLoad(10, 1, 200, True)) == pytest.approx(
            true_ms(StepLoad(10, 1, 200, True), slow), rel=0.1
        )


def test_the_profile_gives_the_shape_where_nothing_was_measured_since() -> None:
    profiled = [StepLoad(rows, 1, 64) for rows in (1, 5, 9, 17, 33)]
    meter = StepMeter([CostSample(load, true_ms(load)) for load in profiled])
    for _ in range(50):
        meter.record(StepLoad(1, 1, 64), true_ms(StepLoad(1, 1, 64), slow=3.0))
    assert meter.cost.ms(StepLoad(33, 1, 64)) == pytest.approx(true_ms(StepLoad(33, 1, 64), slow=3.0), rel=0.1)


def test_what_drafting_takes_from_the_verifier_shows() -> None:
    meter = StepMeter()
    for drafting in [False, True] * 60:
        load = StepLoad(2, 2, 100, drafting)
        meter.record(load, true_ms(load))
    gap = meter.cost.ms(StepLoad(2, 2, 100, True)) - meter.cost.ms(StepLoad(2, 2, 100))
    assert gap == pytest.approx(6.0, rel=0.15)
