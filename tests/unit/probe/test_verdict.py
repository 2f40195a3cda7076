"""What a probe concludes from what it measured."""

from dataclasses import replace

import pytest

from workers.probe.findings import Acceptance, Cost, DraftCost, Findings, Speed, Tree, step_ms_at
from workers.probe.verdict import judge, predicted_speedup

TREE = Tree(2, 1, 2)
ACCEPTANCE = Acceptance("d", TREE, "coupled", 0.0, 200, 100, 200, (100, 100), (60, 40))
COST = Cost({1: 10.0, 3: 14.0, 9: 20.0}, (DraftCost("d", TREE, 1, 6.0), DraftCost("d", TREE, 4, 8.0)))
SPEED = Speed("d", TREE, 0.0, 1, (100.0, 50.0, 90.0), (120.0, 60.0, 45.0), (118.0, 40.0, 99.0), 1.25)


def test_speed_ups_are_medians_of_what_was_measured_side_by_side() -> None:
    assert SPEED.measured == pytest.approx(1.2)  # the third round was disturbed
    assert SPEED.auto == pytest.approx(1.1)


def test_step_costs_between_and_beyond_what_was_measured() -> None:
    assert step_ms_at(COST.verify_ms, 0.5) == 10.0
    assert step_ms_at(COST.verify_ms, 2) == 12.0
    assert step_ms_at(COST.verify_ms, 9) == 20.0
    assert step_ms_at(COST.verify_ms, 18) == 40.0


def test_rates_are_conditional_on_the_parent() -> None:
    assert ACCEPTANCE.length == 2.0
    assert ACCEPTANCE.rates == [0.6, pytest.approx(2 / 3)]
    assert replace(ACCEPTANCE, drafted_per_depth=(), accepted_per_depth=()).rates == []


def test_the_predicted_speedup_is_tokens_per_step_over_its_cost() -> None:
    assert predicted_speedup(ACCEPTANCE, COST, 1) == pytest.approx(2.0 * 10.0 / (14.0 + 6.0))
    four = predicted_speedup(ACCEPTANCE, COST, 4)  # 12 rows are beyond the curve
    assert four == pytest.approx(2.0 * 15.0 / (20.0 * 12 / 9 + 8.0))


def verdict_of(speed: Speed, acceptance: Acceptance = ACCEPTANCE, cost: Cost = COST) -> tuple[bool, str]:
    (verdict,) = judge(Findings("t", 1, (acceptance,), cost, (speed,)))
    return verdict.worth_it, verdict.reason


def test_the_best_measured_tree_is_recommended() -> None:
    wide = Tree(2, 4, 8)
    other = replace(ACCEPTANCE, tree=wide)
    speeds = (
        SPEED,
        replace(SPEED, tree=wide, on_tokens_per_s=(150.0, 75.0, 135.0)),
        replace(SPEED, concurrency=4, on_tokens_per_s=(90.0, 45.0, 81.0)),
    )
    one, four = judge(Findings("t", 1, (ACCEPTANCE, other), COST, speeds))
    assert (one.tree, one.worth_it, one.speedup) == (wide, True, 1.5)
    assert (four.tree, four.worth_it, four.concurrency) == (TREE, False, 4)


def test_without_accepted_tokens_nothing_is_worth_it() -> None:
    nothing = replace(ACCEPTANCE, output_tokens=100, verify_steps=100)
    [verdict] = judge(Findings("t", 3, (nothing,), COST, (SPEED,)))
    assert not verdict.worth_it


def test_reasons() -> None:
    assert verdict_of(SPEED) == (True, "2.00 tokens a step that costs 1.40x a plain one, and 0.60x for drafting")
    slow = replace(SPEED, on_tokens_per_s=(80.0, 40.0, 72.0))
    assert "the draft costs too much" in verdict_of(slow)[1]
    rare = replace(ACCEPTANCE, accepted_per_depth=(30, 10))
    assert verdict_of(slow, rare) == (
        False,
        "in 70% of the steps with a tree none of its first nodes is accepted: "
        "2.00 tokens a step that costs 1.40x a plain one, and 0.60x for drafting",
    )
    cheap = replace(COST, verify_ms={1: 10.0, 3: 25.0}, drafts=(DraftCost("d", TREE, 1, 1.0),))
    assert "all the arithmetic" in verdict_of(slow, cost=cheap)[1]
