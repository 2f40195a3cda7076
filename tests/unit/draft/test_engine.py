"""The engine's trees: what is proposed, what survives a commit, what it costs."""

import pytest

from tests.unit.draft.rig import BUDGET, GREEDY, VOCAB, Rig, opening, target_token
from workers.core.proposal import Proposal, TreeBudget
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.core.token_tree import ROOT, TokenTree

PROMPT = (1, 2, 3, 4, 5)


def check(proposal: Proposal, base_len: int, budget: TreeBudget = BUDGET) -> None:
    tree = proposal.tree
    TokenTree.checked(tree.token_ids, tree.parent_indices, vocab_size=VOCAB, max_nodes=budget.max_nodes)
    assert proposal.base_len == base_len
    assert tree.max_depth <= budget.max_depth
    assert max((len(c) for c in tree.children.values()), default=0) <= budget.max_width


def accepted(tokens: list[int], proposal: Proposal, seed: int | None = None) -> list[int]:
    """What a target with the draft's own table commits: the path through the tree, and one token more."""
    node, out = ROOT, []
    while True:
        token = target_token([*tokens, *out], seed)
        out.append(token)
        child = proposal.tree.child_with_token(node, token)
        if child is None:
            return out
        node = child


def test_first_proposal_fills_the_budget_and_is_sent_once() -> None:
    rig = Rig()
    rig.open(opening())
    rig.settle()
    assert len(rig.proposals[1]) == 1
    check(rig.last(), 5)
    assert len(rig.last().tree) == BUDGET.max_nodes
    assert rig.last().tree.token_ids[0] == target_token(PROMPT)
    assert not rig.failures


def test_levels_before_the_proposal_do_not_exceed_the_depth() -> None:
    rig = Rig(grow_ahead=0)
    rig.open(opening())
    forwards = rig.settle()
    assert 2 <= forwards <= BUDGET.max_depth  # the deepest nodes need no forward


@pytest.mark.parametrize("seed", [None, 3, 11])
def test_a_draft_that_equals_the_target_is_accepted_to_the_end(seed: int | None) -> None:
    rig = Rig()
    sampling = GREEDY if seed is None else SamplingParams()
    rig.open(opening(sampling=sampling, seed=seed or 0))
    tokens = list(PROMPT)
    for _ in range(20):
        proposal = rig.until_proposal(1)
        check(proposal, len(tokens))
        new = accepted(tokens, proposal, seed)
        assert len(new) == proposal.tree.max_depth + 1 or len(new) > 2
        rig.settle()
        rig.commit(1, len(tokens), new)
        tokens += new
    rig.close(1)
    rig.assert_all_free()


def test_a_hit_needs_fewer_forwards_than_a_miss() -> None:
    costs = {}
    for hit in (True, False):
        rig = Rig(grow_ahead=4)
        rig.open(opening())
        rig.settle()
        new = accepted(list(PROMPT), rig.last())
        if not hit:
            new[-1] = next(t for t in range(VOCAB - 1) if t not in (new[-1], *rig.last().tree.token_ids))
        before = rig.engine.counters.forwards
        rig.commit(1, 5, new)
        check(rig.until_proposal(1), 5 + len(new))
        costs[hit] = rig.engine.counters.forwards - before
        assert (rig.engine.counters.hits, rig.engine.counters.misses) == (hit, not hit)
    assert costs[True] < costs[False]


def test_what_survives_is_sent_without_a_forward() -> None:
    rig = Rig(grow_ahead=5)
    rig.open(opening())
    rig.settle()
    new = accepted(list(PROMPT), rig.last())
    rig.commit(1, 5, new)
    forwards = rig.engine.counters.forwards
    rig.step()
    assert rig.engine.counters.early_proposals == 1
    check(rig.last(), 5 + len(new))
    assert rig.engine.counters.forwards <= forwards + 1


def test_accepted_kv_is_not_computed_again() -> None:
    rig = Rig(grow_ahead=4)
    rig.open(opening())
    rig.settle()
    new = accepted(list(PROMPT), rig.last())
    fed = rig.engine.counters.fed_tokens
    rig.commit(1, 5, [*new[:-1], (new[-1] + 1) % (VOCAB - 1)])  # all accepted, another bonus token
    rig.until_proposal(1)
    assert rig.engine.counters.fed_tokens == fed + 1  # the new root alone; PathRunner checks the moved slots


def test_a_paused_session_is_caught_up_by_one_commit() -> None:
    rig = Rig()
    rig.open(opening())
    rig.settle()
    rig.commit(1, 5, (9,), paused=True)
    rig.commit(1, 6, (10, 11), paused=True)
    assert rig.settle() == 0
    assert len(rig.proposals[1]) == 1
    rig.commit(1, 8, (12,))
    check(rig.until_proposal(1), 9)


def test_a_budget_without_nodes_is_a_pause() -> None:
    rig = Rig()
    rig.open(opening(budget=TreeBudget(4, 3, 0)))
    assert rig.settle() == 0
    assert not rig.proposals
    rig.commit(1, 5, ())
    check(rig.until_proposal(1), 5)


def test_a_commit_before_the_prompt_is_computed() -> None:
    rig = Rig(max_tokens=16)
    rig.open(opening(tokens=range(50)))
    rig.step()
    rig.commit(1, 50, (9, 8))
    check(rig.until_proposal(1), 52)
    assert max(len(visits) for visits in rig.runner.visits) <= 16


def test_sessions_share_forwards() -> None:
    rig = Rig(max_sessions=4)
    rig.open(*(opening(i, (i + 1, 2, 3)) for i in range(4)))
    alone = Rig()
    alone.open(opening(0, (1, 2, 3)))
    assert rig.settle() <= alone.settle() + 2
    assert max(rig.runner.batches) == 4
    assert rig.last(0) == alone.last(0)


def test_many_trees_fit_the_token_budget_of_a_step() -> None:
    rig = Rig(max_tokens=16)
    rig.open(*(opening(i, range(i, i + 20)) for i in range(8)))
    rig.settle()
    assert max(len(visits) for visits in rig.runner.visits) <= 16
    assert all(len(rig.proposals[i]) == 1 for i in range(8))


def test_chain_budget() -> None:
    rig = Rig(grow_ahead=0)
    budget = TreeBudget(5, 1, 5)
    rig.open(opening(budget=budget))
    rig.settle()
    check(rig.last(), 5, budget)
    assert rig.last().tree.parent_indices == (-1, 0, 1, 2, 3)
    assert accepted(list(PROMPT), rig.last())[:5] == list(rig.last().tree.token_ids)


def test_smaller_budget_after_a_commit_is_obeyed() -> None:
    rig = Rig(grow_ahead=5)
    rig.open(opening())
    rig.settle()
    new = accepted(list(PROMPT), rig.last())
    small = TreeBudget(2, 1, 2)
    rig.commit(1, 5, new, budget=small)
    check(rig.until_proposal(1), 5 + len(new), small)


def test_the_tree_stops_before_the_context_and_the_answer_end() -> None:
    rig = Rig(context_length=7)
    rig.open(opening())
    assert rig.until_proposal(1).tree.max_depth == 2
    rig.commit(1, 5, (9, 9))
    assert len(rig.until_proposal(1).tree) == 0
    rig.commit(1, 7, (9,))
    assert len(rig.until_proposal(1).tree) == 0
    other = Rig()
    other.open(opening(sampling=SamplingParams(temperature=0.0, max_tokens=3)))
    assert other.until_proposal(1).tree.max_depth == 2


def test_end_tokens_are_not_expanded() -> None:
    rig = Rig()
    rig.open(opening(sampling=SamplingParams(temperature=0.0, stop_token_ids=tuple(range(60)))))
    rig.settle()
    tree = rig.last().tree
    assert all(tree.token_ids[parent] >= 60 for parent in tree.children if parent != ROOT)
    assert any(token < 60 for token in tree.token_ids)


def test_penalties_follow_the_path() -> None:
    rig = Rig(logits=lambda path, vocab: _favour(vocab))
    penalty = SamplingParams(temperature=0.0, presence_penalty=2.0)
    budget = TreeBudget(4, 1, 4)
    rig.open(opening(sampling=penalty, budget=budget))
    rig.settle()
    assert rig.last().tree.token_ids == (40, 41, 42, 43)  # each only once, though 40 is always the best


def _favour(vocab: int):  # type: ignore[no-untyped-def]
    import torch

    logits = torch.zeros(vocab)
    logits[40:45] = torch.tensor([10.0, 9.9, 9.8, 9.7, 9.6])
    return logits


@pytest.mark.parametrize("greedy", [True, False])
def test_rejection_sends_the_distributions_of_inner_nodes(greedy: bool) -> None:
    rig = Rig(grow_ahead=5)
    sampling = GREEDY if greedy else SamplingParams(temperature=1.0)
    rig.open(opening(sampling=sampling, rule=VerificationRule.REJECTION))
    tokens = list(PROMPT)
    for _ in range(10):
        proposal = rig.until_proposal(1)
        check(proposal, len(tokens))
        proposal.check_distributions(VOCAB)
        assert set(proposal.distributions) == set(proposal.tree.children)
        rig.settle()
        deepest = max(range(len(proposal.tree)), key=lambda n: proposal.tree.depths[n])
        new = [proposal.tree.token_ids[n] for n in proposal.tree.path(deepest)]
        new.append(target_token([*tokens, *new]))
        rig.commit(1, len(tokens), new)
        tokens += new
    assert rig.engine.counters.hits > 0 or not greedy
