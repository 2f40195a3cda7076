"""Calibration: estimates go where the truth is, per depth and sibling number, with hints and without."""

import math
import random

import pytest

from workers.core.proposal import Proposal
from workers.core.token_tree import TokenTree
from workers.scheduling.survival import RequestFactor, SurvivalModel, conditionals_of, survivals_of

FORK = TokenTree((1, 2, 3), (-1, -1, 0))  # two children of the root, one below the first


def teach(model: SurvivalModel, kind: str, proposal: Proposal, probs: dict[int, float], rounds: int = 400) -> None:
    """Accept each node, if its parent is, with its true probability."""
    rng, shape, factor = random.Random(0), conditionals_of(proposal), RequestFactor()
    for _ in range(rounds):
        draw = rng.random()
        first = next((n for n in (0, 1) if draw < sum(probs[m] for m in range(n + 1))), None)
        accepted = set() if first is None else {first}
        if first == 0 and rng.random() < probs[2]:
            accepted.add(2)
        model.learn(kind, shape, {-1, *accepted}, accepted, factor)


@pytest.mark.parametrize("hints", [(), (math.log(0.9), math.log(0.08), math.log(0.85))])
def test_it_learns_each_depth_and_sibling(hints: tuple[float, ...]) -> None:
    proposal = Proposal(9, FORK, log_survival=hints)
    model, truth = SurvivalModel(), {0: 0.4, 1: 0.3, 2: 0.7}
    teach(model, "coupled", proposal, truth)
    survivals = survivals_of(model, "coupled", conditionals_of(proposal), 1.0)
    assert survivals == pytest.approx((0.4, 0.3, 0.28), abs=0.08)


def test_kinds_are_apart_and_hints_are_believed_at_first() -> None:
    proposal = Proposal(9, FORK, log_survival=(math.log(0.9), math.log(0.08), math.log(0.45)))
    model = SurvivalModel()
    teach(model, "greedy", proposal, {0: 0.1, 1: 0.0, 2: 0.0})
    fresh = survivals_of(model, "coupled", conditionals_of(proposal), 1.0)
    assert fresh == pytest.approx((0.9, 0.08, 0.45))
    assert survivals_of(model, "greedy", conditionals_of(proposal), 1.0)[0] < 0.2


def test_survival_never_rises_along_a_path_or_among_siblings() -> None:
    proposal = Proposal(9, FORK, log_survival=(-2.0, -0.1, -0.5))
    survivals = survivals_of(SurvivalModel(), "coupled", conditionals_of(proposal), 1.0)
    assert survivals[1] <= survivals[0]
    assert survivals[2] <= survivals[0]


def test_children_of_a_node_that_ended_the_answer_teach_nothing() -> None:
    model, shape = SurvivalModel(), conditionals_of(Proposal(9, TokenTree.chain([1, 2])))
    model.learn("coupled", shape, {-1}, {0}, RequestFactor())
    assert {cell[2] for cell in model.cells} == {1}


def test_a_request_with_easy_text_is_worth_more_nodes() -> None:
    easy, hard = RequestFactor(), RequestFactor()
    for _ in range(50):
        easy.record(0.5, accepted=True)
        hard.record(0.5, accepted=False)
    shape = conditionals_of(Proposal(9, FORK))
    assert survivals_of(SurvivalModel(), "c", shape, easy.value)[0] > 0.9
    assert survivals_of(SurvivalModel(), "c", shape, hard.value)[0] < 0.2
