"""Rule `rejection` under the budget controller: the drafter's own trees, cut by calibrated survival over requests."""

from collections import Counter

import pytest

from tests.engine.draft.test_exactness import VOCAB, assert_follows, draft, emitted, expected_pairs
from workers.core.proposal import Proposal, TreeBudget
from workers.scheduling.controller import BudgetController
from workers.scheduling.modes import ModeSettings
from workers.scheduling.step_cost import CostSample, StepLoad

BUDGET = TreeBudget(3, 3, 8)
COUNT = 600
TOGETHER = 4  # requests that share a step's budget
ROW_SHARE = 0.05  # of a step: dear enough that about half of the nodes do not pay
PAIRS = expected_pairs()
FIRSTS = {a: sum(PAIRS[a, b] for b in range(VOCAB)) for a in range(VOCAB)}

Keys = tuple[int, ...]


def dear_rows() -> list[CostSample]:
    loads = [StepLoad(rows, TOGETHER, 0) for rows in range(1, 60, 4)]
    return [CostSample(load, 10.0 * (1.0 + ROW_SHARE * load.rows / TOGETHER)) for load in loads]


def by_controller(proposals: dict[int, Proposal]) -> dict[int, Proposal]:
    """What `BudgetController.choose` keeps, steps of a few requests, learning from step to step as an engine would."""
    controller = BudgetController(ModeSettings(probe_every=0, control_every=0), dear_rows())
    kept: dict[int, Proposal] = {}
    for first in range(0, len(proposals), TOGETHER):
        keys = list(proposals)[first : first + TOGETHER]
        for key in keys:
            controller.open(key, forced=False, kind="rejection")
        group = {key: proposals[key] for key in keys}
        load = StepLoad(len(keys), len(keys), 0)
        choice = controller.choose(group, dict.fromkeys(keys, BUDGET), load, 64)
        for key, nodes in zip(choice.keys, choice.decision.nodes, strict=True):
            kept[key] = proposals[key].select(nodes)
            tokens = emitted(key, kept[key], BUDGET)
            accepted = accepted_path(kept[key], tokens)
            controller.learn(key, kept[key], accepted, len(tokens))
            controller.close(key)
    return kept


def accepted_path(proposal: Proposal, tokens: tuple[int, ...]) -> list[int]:
    path: list[int] = []
    for token in tokens:
        child = proposal.tree.child_with_token(path[-1] if path else -1, token)
        if child is None:
            break
        path.append(child)
    return path


def by_foresight(proposals: dict[int, Proposal]) -> dict[int, Proposal]:
    """Keeps a tree only if what stands below its first node is promising: that depends on the node's own token."""
    kept: dict[int, Proposal] = {}
    for key, proposal in proposals.items():
        below = [proposal.hints[child] - proposal.hints[0] for child in proposal.tree.children.get(0, ())]
        kept[key] = proposal if below and max(below) > -0.45 else proposal.select([])
    return kept


@pytest.fixture(scope="module")
def proposals() -> dict[int, Proposal]:
    return draft(COUNT, BUDGET)


def check(kept: dict[int, Proposal]) -> set[tuple[int, ...]]:
    """Chi-square of first tokens, and of second ones after each first."""
    firsts = Counter[int]()
    seconds: dict[int, Counter[int]] = {a: Counter() for a in range(VOCAB)}
    for seed, proposal in kept.items():
        tokens = emitted(seed, proposal, BUDGET)
        firsts[tokens[0]] += 1
        if len(tokens) > 1:
            seconds[tokens[0]][tokens[1]] += 1
    assert_follows(firsts, FIRSTS)
    for a, counter in seconds.items():
        if sum(counter.values()) >= 60:
            assert_follows(counter, {b: PAIRS[a, b] / FIRSTS[a] for b in range(VOCAB)})
    return {proposal.tree.parent_indices for proposal in kept.values()}


def test_what_the_controller_keeps_follows_the_target(proposals: dict[int, Proposal]) -> None:
    shapes = check(by_controller(proposals))
    assert len(shapes) > 3, "it cuts nothing, or everything: the test would prove nothing"


def test_the_test_would_notice_a_cut_with_foresight(proposals: dict[int, Proposal]) -> None:
    with pytest.raises(AssertionError, match="Counter"):
        check(by_foresight(proposals))
