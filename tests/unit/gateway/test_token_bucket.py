"""A rate that holds over every stretch of time, whatever is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.token_bucket import TokenBucket


def test_a_burst_then_the_rate() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    assert bucket.wait_s(100, 0.0) == 0.0
    bucket.take(100, 0.0)
    assert bucket.wait_s(50, 0.0) == pytest.approx(5.0)
    assert bucket.wait_s(50, 5.0) == 0.0


def test_more_than_the_burst_can_be_had_when_the_bucket_is_full() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    assert bucket.wait_s(5000, 0.0) == 0.0
    bucket.take(5000, 0.0)
    assert bucket.wait_s(1, 0.0) == pytest.approx(490.1)


def test_new_limits_do_not_forgive_a_debt() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    bucket.take(150, 0.0)
    bucket.change(50.0, 500.0, 0.0)
    assert bucket.wait_s(50, 0.0) == pytest.approx(2.0)
    bucket.change(50.0, 20.0, 100.0)
    bucket.take(20, 100.0)
    assert bucket.wait_s(10, 100.0) == pytest.approx(0.2)


@given(
    st.floats(0.1, 100.0),
    st.floats(1.0, 1000.0),
    st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 500.0)), max_size=50),
)
def test_what_is_admitted_stays_below_burst_plus_rate(
    rate: float, burst: float, asked: list[tuple[float, float]]
) -> None:
    """Requests that wait as told get at most what the bucket yields, beyond the one that may exceed the burst."""
    bucket, now, taken, largest = TokenBucket(rate, burst, 0.0), 0.0, 0.0, 0.0
    for pause, tokens in asked:
        now += pause
        wait = bucket.wait_s(tokens, now)
        assert wait <= (burst + max(0.0, taken)) / rate + 1e-6
        now += wait
        if bucket.wait_s(tokens, now) <= 1e-6:
            bucket.take(tokens, now)
            taken += tokens
            largest = max(largest, tokens)
    assert taken <= burst + rate * now + largest + 1e-3
