"""Percentiles and differences over a sliding window."""

import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.sliding import SlidingDeltas, SlidingHistogram


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@given(st.lists(st.floats(0.01, 1e7), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_percentiles_are_right_within_a_tenth(values: list[float], share: float) -> None:
    histogram = SlidingHistogram(60.0, Clock())
    for value in values:
        histogram.add(value)
    rank = min(len(values), int(-(-share * len(values) // 1)))
    expected = sorted(values)[max(0, rank - 1)]
    found = histogram.percentile(share)
    assert found is not None
    assert expected * 0.999 <= found <= expected * 1.101


def test_old_values_are_forgotten() -> None:
    clock = Clock()
    histogram = SlidingHistogram(60.0, clock)
    assert histogram.percentile(0.95) is None
    histogram.add(100.0)
    clock.now_s += 45.0
    histogram.add(1.0)
    high = histogram.percentile(1.0)
    assert high is not None
    assert high >= 100.0
    clock.now_s += 20.0
    high = histogram.percentile(1.0)
    assert high is not None
    assert high < 2.0
    clock.now_s += 60.0
    assert histogram.percentile(1.0) is None


def test_values_out_of_range_count_as_the_nearest() -> None:
    histogram = SlidingHistogram(60.0, Clock())
    for value in (-1.0, 0.0, 1e30):
        histogram.add(value)
    low, high = histogram.percentile(0.5), histogram.percentile(1.0)
    assert low == 0.01
    assert high is not None
    assert high >= 1e8


def test_many_threads_lose_nothing() -> None:
    histogram = SlidingHistogram(60.0, Clock())
    threads = [
        threading.Thread(target=lambda: [histogram.add(5.0) for _ in range(2000)] and histogram.percentile(0.5))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sum(counts.values()) for _, counts in histogram._slices) == 8000


@pytest.mark.parametrize("window_s", [0.0, -1.0, float("nan")])
def test_a_window_must_last(window_s: float) -> None:
    with pytest.raises(ValueError, match="window_s must be above 0"):
        SlidingHistogram(window_s, Clock())


def test_differences_over_the_window() -> None:
    clock = Clock()
    deltas = SlidingDeltas(60.0, clock)
    clock.now_s += 10.0
    assert deltas.update({"a": 5.0}) == ({"a": 5.0}, 10.0)
    total = 5.0
    for _ in range(20):
        clock.now_s += 10.0
        total += 3.0
        grown, seconds = deltas.update({"a": total})
    assert seconds == 60.0
    assert grown == {"a": 18.0}


def test_looking_often_does_not_shorten_the_window_or_fill_the_memory() -> None:
    clock = Clock(0.0)
    deltas = SlidingDeltas(60.0, clock)
    for step in range(5000):
        clock.now_s = step * 0.1
        grown, seconds = deltas.update({"a": clock.now_s})
    assert 60.0 <= seconds <= 71.0
    assert grown["a"] == pytest.approx(seconds)
    assert len(deltas._seen) <= 8
