"""What is counted as lost, repeated and changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.faults.comparison import Difference, compare


@pytest.mark.parametrize(
    ("got", "difference"),
    [
        ([1, 2, 3, 4, 5, 6], Difference()),
        ([1, 2, 3, 4], Difference(lost=2)),
        ([1, 2, 5, 6], Difference(lost=2)),
        ([], Difference(lost=6)),
        ([1, 2, 3, 2, 3, 4, 5, 6], Difference(repeated=2)),
        ([1, 2, 9, 4, 5, 6], Difference(changed=1)),
        ([1, 2, 3, 4, 5, 6, 9], Difference(changed=1)),
        ([1, 9, 9, 2, 3, 5, 6], Difference(lost=1, changed=2)),
    ],
)
def test_examples(got: list[int], difference: Difference) -> None:
    assert compare([1, 2, 3, 4, 5, 6], got) == difference
    assert bool(difference) == (got != [1, 2, 3, 4, 5, 6])


tokens = st.lists(st.integers(0, 3), max_size=12)


@given(tokens, tokens)
def test_nothing_is_found_only_in_equal_answers(expected: list[int], got: list[int]) -> None:
    difference = compare(expected, got)
    assert bool(difference) == (expected != got)
    assert min(difference.lost, difference.repeated, difference.changed) >= 0
