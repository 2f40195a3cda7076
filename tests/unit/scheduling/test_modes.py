"""How a probe ends."""

import pytest

from workers.core.proposal import Proposal, TreeBudget
from workers.core.token_tree import TokenTree
from workers.scheduling.controller import BudgetController
from workers.scheduling.modes import PROBE_STEPS, SURPRISE, Evaluation, Modes, ModeSettings
from workers.scheduling.sessions import DraftProfile, Session
from workers.scheduling.step_cost import StepLoad


@pytest.mark.parametrize(("surprise", "goes_on"), [(SURPRISE, True), (SURPRISE - 0.1, False)])
def test_a_surprising_probe_goes_on_another_does_not(surprise: float, goes_on: bool) -> None:
    session = Session(1, "greedy", False, True, DraftProfile(), arrived=True, probing=1, surprise=surprise)
    Modes(ModeSettings()).apply([session], Evaluation(frozenset(), 1.0))
    assert (session.active, session.probing) == ((True, PROBE_STEPS) if goes_on else (False, 0))
    assert session.surprise == (0.0 if goes_on else surprise)


def test_a_probe_waits_for_what_nobody_else_would_wait_for() -> None:
    controller = BudgetController()
    controller.open(1, forced=False, kind="greedy")
    session = controller._sessions[1]
    session.profile = DraftProfile([0.0] * len(session.profile.survivals))
    load, due = StepLoad(1, 1, 0), {1: (0.1, 0.0)}
    assert controller.grace(load, [], due, 100.0) == 0.0
    session.probing = PROBE_STEPS
    assert controller.grace(load, [], due, 100.0) > 0.0


def test_accepted_nodes_beyond_the_expected_ones_surprise() -> None:
    controller = BudgetController()
    controller.open(1, forced=False, kind="greedy")
    tree = TokenTree.chain((5, 6))
    controller.choose({1: Proposal(3, tree)}, {1: TreeBudget(2, 1, 2)}, StepLoad(1, 1, 0), 8)
    controller.learn(1, Proposal(3, tree), [0, 1], 3)
    # The first guess is 0.5; having seen it accepted, the second node is expected with (1 + 4 * 0.5) / (1 + 4).
    assert controller._sessions[1].surprise == pytest.approx(2 - 0.5 - 0.6)
