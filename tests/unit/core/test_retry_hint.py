"""Hints follow the pace at which places get free, and spread those who are refused together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.retry_hint import MAX_HINT_S, MIN_HINT_S, RetryHints


def steady(interval_s: float, count: int = 50) -> RetryHints:
    hints = RetryHints()
    for i in range(count):
        hints.left(i * interval_s)
    return hints


def test_before_anything_is_known_there_is_a_hint_all_the_same() -> None:
    assert MIN_HINT_S <= RetryHints().refuse(0.0) <= MAX_HINT_S


@pytest.mark.parametrize("interval_s", [0.1, 0.4, 2.0])
def test_one_refusal_waits_for_one_place(interval_s: float) -> None:
    assert steady(interval_s).refuse(49 * interval_s) == pytest.approx(interval_s, rel=0.01)


def test_refusals_stand_in_line() -> None:
    hints = steady(0.1)
    assert [hints.refuse(4.9) for _ in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5], rel=0.01)
    assert hints.refuse(5.1) == pytest.approx(0.4, rel=0.01), "the line has moved on by two places"
    assert hints.refuse(60.0) > 1.0, "nothing has left for a minute: that is the pace now"


def test_a_pause_without_work_says_nothing_of_the_pace() -> None:
    hints = steady(0.1)
    hints.idle()
    assert hints.refuse(1000.0) == pytest.approx(0.1, rel=0.01)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 100.0)), max_size=60))
def test_hints_stay_within_their_bounds(events: list[tuple[bool, float]]) -> None:
    hints, now = RetryHints(), 0.0
    for leaves, pause in events:
        now += pause
        if leaves:
            hints.left(now)
        else:
            assert MIN_HINT_S <= hints.refuse(now) <= MAX_HINT_S
