"""Prompt lookup against a direct search, and what it costs."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.proposers.driver import answer, generation_request, run_request
from workers.core.config import NgramConfig
from workers.core.proposal import TreeBudget
from workers.core.sampling_params import SpeculationMode, VerificationRule
from workers.core.statistics import GenerationStats
from workers.core.token_tree import TokenTree
from workers.proposers.base import CommitUpdate, DraftSession, Proposer, Want
from workers.proposers.ngram import NgramProposer
from workers.proposers.none import NullProposer

CONFIG = NgramConfig(prompt_lookup_min=2, prompt_lookup_max=3)
BUDGET = TreeBudget(max_depth=4, max_width=3, max_nodes=10)


def opened(
    tokens: Sequence[int], rule: VerificationRule = VerificationRule.COUPLED, config: NgramConfig = CONFIG
) -> NgramProposer:
    proposer = NgramProposer(config)
    request = generation_request([0, 0, 0, 0, 0], (), rule=rule)
    proposer.open(DraftSession(1, request, tokens, GenerationStats()))
    return proposer


def propose(proposer: Proposer, length: int, budget: TreeBudget = BUDGET) -> TokenTree:
    proposal = proposer.collect({1: Want(length, budget)}).get(1)
    return TokenTree.empty() if proposal is None else proposal.tree


def branches(tree: TokenTree) -> set[tuple[int, ...]]:
    """Token paths to all leaves."""
    return {tuple(tree.token_ids[n] for n in tree.path(leaf)) for leaf in range(len(tree)) if leaf not in tree.children}


def test_it_proposes_what_followed_the_longest_match() -> None:
    tokens = [5, 1, 2, 3, 10, 11, 12, 13, 9, 2, 3, 20, 21, 22, 23, 7, 1, 2, 3]
    tree = propose(opened(tokens), len(tokens))
    # (1, 2, 3) occurred once; the more recent (2, 3) is a shorter match
    assert branches(tree) == {(10, 11, 12, 13)}


def test_different_continuations_branch_most_recent_first() -> None:
    tokens = [1, 2, 3, 10, 11, 0, 1, 2, 3, 10, 12, 0, 1, 2, 3, 30, 31, 0, 1, 2, 3]
    tree = propose(opened(tokens), len(tokens), TreeBudget(2, 3, 10))
    assert branches(tree) == {(30, 31), (10, 12), (10, 11)}
    assert tree.token_ids[0] == 30


def test_budgets_are_kept() -> None:
    tokens = [1, 2, 3, 10, 11, 0, 1, 2, 3, 10, 12, 0, 1, 2, 3, 30, 31, 0, 1, 2, 3]
    proposer = opened(tokens)
    assert branches(propose(proposer, len(tokens), TreeBudget(2, 1, 10))) == {(30, 31)}
    assert branches(propose(proposer, len(tokens), TreeBudget(2, 3, 3))) == {(30, 31), (10,)}
    assert branches(propose(proposer, len(tokens), TreeBudget(1, 3, 9))) == {(30,), (10,)}
    assert not len(propose(proposer, len(tokens), TreeBudget(4, 3, 0)))


def test_no_match_is_no_proposal() -> None:
    assert not opened(range(50)).collect({1: Want(50, BUDGET)})
    assert not opened([1]).collect({1: Want(1, BUDGET)})


def test_under_rejection_its_certain_guesses_need_no_distributions() -> None:
    tokens = [1, 2, 3, 10, 11, 0, 1, 2, 3, 30, 31, 0, 1, 2, 3]
    proposal = opened(tokens, VerificationRule.REJECTION).collect({1: Want(len(tokens), BUDGET)})[1]
    assert branches(proposal.tree) == {(30, 31, 0, 1), (10, 11, 0, 1)}
    assert not proposal.distributions


def test_commits_extend_the_index_and_pauses_silence_it() -> None:
    proposer = opened([1, 2, 3, 4])
    proposer.commit([CommitUpdate(1, 4, (1, 2), BUDGET)])
    assert branches(propose(proposer, 6)) == {(3, 4, 1, 2)}
    assert not len(propose(proposer, 5))  # another base_len
    proposer.commit([CommitUpdate(1, 6, (3,), BUDGET, paused=True)])
    assert not len(propose(proposer, 7))
    proposer.commit([CommitUpdate(1, 7, (4,), BUDGET)])
    assert branches(propose(proposer, 8)) == {(1, 2, 3, 4)}
    proposer.close(1)
    proposer.close(1)
    proposer.commit([CommitUpdate(1, 8, (4,), BUDGET)])
    assert not len(propose(proposer, 8))


def test_requests_with_speculation_off_are_left_alone() -> None:
    proposer = NgramProposer(CONFIG)
    request = generation_request([1, 2, 1, 2, 1], (), mode=SpeculationMode.OFF)
    proposer.open(DraftSession(1, request, [1, 2, 1, 2], GenerationStats()))
    assert not proposer.collect({1: Want(4, BUDGET)})


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    cut=st.integers(0, 40),
    low=st.integers(1, 3),
    extra=st.integers(0, 2),
)
def test_it_agrees_with_a_direct_search(tokens: list[int], cut: int, low: int, extra: int) -> None:
    """However the sequence was cut into commits, the first branch is the most recent longest match."""
    proposer = opened(tokens[:cut], config=NgramConfig(prompt_lookup_min=low, prompt_lookup_max=low + extra))
    proposer.commit([CommitUpdate(1, len(tokens[:cut]), tuple(tokens[cut:]), BUDGET)])
    tree = propose(proposer, len(tokens), TreeBudget(4, 1, 100))
    assert branches(tree) == ({expected} if (expected := direct(tokens, low, low + extra)) else set())


def direct(tokens: list[int], low: int, high: int) -> tuple[int, ...]:
    for n in range(high, low - 1, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                return tuple(tokens[start + n : start + n + 4])
    return ()


def test_repetitive_text_is_finished_in_few_steps() -> None:
    sequence = answer(30) + answer(30) + answer(30)
    request = generation_request(sequence, ())
    run = run_request(NgramProposer(CONFIG), request, sequence)
    assert run.committed == sequence
    assert len(run.waits) < 30 + 60 / 4


def test_the_null_proposer_proposes_nothing() -> None:
    sequence = answer(12)
    run = run_request(NullProposer(), generation_request(sequence, ()), sequence)
    assert run.committed == sequence
    assert not run.proposals
