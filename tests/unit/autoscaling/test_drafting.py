"""How many drafters are decided on, and what is remembered of those that were too slow."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.autoscaling.decide import decide
from cluster.autoscaling.snapshot import PoolState, State
from cluster.config.autoscaling import AutoscalingSettings
from tests.unit.autoscaling.pools import NOW_S, SETTLED, decided, drafter, pool, quick, snapshot, verifier


def drafter_target(signals: Any, above: Any, settings: AutoscalingSettings | None = None) -> int:
    decision = decided(pool(above), pool(signals), settings).drafters
    assert decision is not None
    return decision.target


@pytest.mark.parametrize(
    ("signals", "above", "expected"),
    [
        (drafter(sessions=48), {}, 4),
        (drafter(sessions=64), {}, 6),
        (drafter(sessions=4), {}, 1),
        (drafter(sessions=48, busy=1.0), {}, 4),  # one that batches computes all the time long before it is full
        (drafter(sessions=16, busy=0.7), {"demanded_nodes": 100, "delivered_nodes": 60}, 2),
        (drafter(sessions=16, busy=0.7), {"demanded_nodes": 100, "delivered_nodes": 25}, 8),
        (drafter(sessions=16, busy=1.0), {"demanded_nodes": 100, "delivered_nodes": 0}, 14),  # 4 * 1.0 / min_busy
        (drafter(sessions=16, busy=0.7), {"proposals": 100, "late": 60}, 8),
        (drafter(sessions=16, busy=0.7), {"proposals": 100, "late": 20}, 2),
        (
            drafter(sessions=48, busy=0.3),
            {"proposals": 100, "late": 100},
            4,
        ),  # more would lie idle: the network is slow
        (drafter(sessions=64), {"trees": 100, "accepted": 10}, 1),  # does not pay
        (drafter(sessions=64), {"trees": 100, "accepted": 100}, 6),
        (drafter(sessions=64), {"trees": 1, "accepted": 0}, 6),  # too few to say
    ],
)
def test_drafters(signals: Any, above: dict[str, float], expected: int) -> None:
    assert drafter_target(signals, verifier(running=20, **above)) == expected


def test_where_drafts_were_late_is_remembered_and_tried_again_after_a_while() -> None:
    """Four drafters with 16 sessions each were twice too slow: one carries 8."""
    late = pool(verifier(running=20, proposals=100, late=60))
    state = decided(late, pool(drafter(sessions=16, busy=0.7))).state
    timely, drafters = pool(verifier(running=20, proposals=100, late=5)), pool([drafter(sessions=8, busy=0.7)] * 8, 8)
    settled = replace(state.drafters, ready=8, ready_since_s=0.0)
    for later_s, expected in ((0, 8), (3600, 8), (3602, 8), (7204, 6)):  # within the tolerance; twice a quarter more
        decision = decide(snapshot(NOW_S + later_s, timely, drafters), quick(), replace(state, drafters=settled))
        assert decision.drafters is not None
        assert decision.drafters.target == expected, decision.drafters.reasons
        settled = replace(decision.state.drafters, ready_since_s=0.0)


def test_late_drafts_keep_a_pool_that_has_not_settled() -> None:
    fresh = State(SETTLED, PoolState(ready=4, ready_since_s=NOW_S - 5))
    decision = decided(pool(verifier(proposals=100, late=60)), pool(drafter(sessions=4, busy=0.7)), state=fresh)
    assert decision.drafters is not None
    assert decision.drafters.target == 4
    assert decision.state.drafters.carried is None


def test_a_pool_that_does_not_pay_comes_back_only_when_it_clearly_does() -> None:
    before = State(SETTLED, PoolState(ready=4, ready_since_s=0.0, pays=False))
    for accepted, expected in ((30, 1), (32, 6)):  # per 100 trees; 25 needed, 25 % more to be believed again
        above = pool(verifier(running=20, trees=100, accepted=accepted))
        decision = decided(above, pool(drafter(sessions=64)), state=before).drafters
        assert decision is not None
        assert decision.target == expected, decision.reasons


def test_the_ratio_is_bounded_and_the_pools_bounds_come_first() -> None:
    few = quick(drafters_per_verifier={"min": 2})
    assert drafter_target(drafter(busy=0.1), verifier(running=24), few) == 8
    many = quick(drafters_per_verifier={"max": 1})
    assert drafter_target(drafter(sessions=64), verifier(running=24), many) == 4
    narrow = decided(pool(verifier(running=24)), pool(drafter(busy=0.1), high=5), few).drafters
    assert narrow is not None
    assert narrow.target == 5
    assert "at least 2 for each of 4 verifiers" in narrow.reasons[-1]


def test_drafters_for_verifiers_that_are_to_come() -> None:
    settings = quick(drafters_per_verifier={"min": 1})
    decision = decided(pool(verifier(running=32)), pool(drafter(busy=0.7)), settings)
    assert decision.verifiers is not None
    assert decision.drafters is not None
    assert (decision.verifiers.target, decision.drafters.target) == (6, 6)
