"""The static tree: best first, always closed, optimal for every size."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.proposal import TreeBudget
from workers.medusa.tree import check_tree, choose_tree, tree_within, usual_accuracies

accuracies = st.lists(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=5), min_size=1, max_size=4)


@given(accuracies, st.integers(1, 40))
def test_every_beginning_is_a_tree(found: list[list[float]], size: int) -> None:
    choices = choose_tree(found, size)
    check_tree(choices)
    assert len(choices) <= size
    assert choices[: size // 2] == choose_tree(found, size // 2)


def test_no_tree_of_that_size_is_accepted_more_often() -> None:
    found = [[0.6, 0.2, 0.1], [0.5, 0.25, 0.1], [0.4, 0.1]]

    def worth(choice: tuple[int, ...]) -> float:
        value = 1.0
        for depth, rank in enumerate(choice):
            value *= found[depth][rank]
        return value

    every = [choice for depth in range(1, 4) for choice in product(*(range(len(found[d])) for d in range(depth)))]
    best = sorted(map(worth, every), reverse=True)
    for size in range(1, 20):
        assert sum(map(worth, choose_tree(found, size))) == pytest.approx(sum(best[:size]))


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 30))
def test_the_part_within_a_budget_is_a_tree_within_it(depth: int, width: int, nodes: int) -> None:
    part = tree_within(choose_tree(usual_accuracies(4), 40), TreeBudget(depth, width, nodes))
    check_tree(part)
    assert 0 < len(part) <= nodes
    assert max(map(len, part)) <= depth
    assert max(map(max, part)) < width


def test_no_budget_no_tree() -> None:
    assert tree_within(choose_tree(usual_accuracies(4), 40), TreeBudget(0, 4, 16)) == ()
    assert tree_within(choose_tree(usual_accuracies(4), 40), TreeBudget(4, 4, 0)) == ()


@pytest.mark.parametrize("wrong", [((0, 0),), ((1,),), ((0,), (0,)), ((),), ((0,), (-1,))])
def test_what_is_no_tree(wrong: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"stands"):
        check_tree(wrong)
