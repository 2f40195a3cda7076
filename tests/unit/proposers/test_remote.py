"""The remote proposer with honest drafters, over real gRPC."""

import time

import pytest

from tests.fakes.behaviours import Dying, Empty, Late, Oracle, OverCapacity, RandomTrees, Silent, Stale
from tests.fakes.scripted_drafter import ScriptedDrafter, ThreadedDrafter
from tests.unit.proposers.driver import (
    BUDGET,
    Running,
    answer,
    connected,
    eventually,
    generation_request,
    remote_proposer,
    run_request,
)
from workers.core.proposal import TreeBudget
from workers.core.request import DrafterEndpoint
from workers.core.sampling_params import SpeculationMode, VerificationRule
from workers.core.statistics import GenerationStats
from workers.proposers.base import DraftSession, Want
from workers.proposers.remote import RemoteProposer

SEQUENCE = answer()


def only_first_answer(drafter: ThreadedDrafter) -> None:
    """Let the drafter answer the opening of a session, and nothing after it."""
    assert eventually(lambda: bool(drafter.fake.opens))
    drafter.fake.behaviour = Silent()


@pytest.mark.parametrize("rule", [VerificationRule.COUPLED, VerificationRule.REJECTION])
def test_an_oracle_is_accepted_in_full(proposer: RemoteProposer, rule: VerificationRule) -> None:
    with ThreadedDrafter(Oracle([SEQUENCE], distractors=1)) as drafter:
        connected(proposer, drafter)
        run = run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,), rule=rule), SEQUENCE)
        assert eventually(lambda: drafter.fake.closes == [1])
    assert run.committed == SEQUENCE
    # 55 tokens, 4 accepted + 1 each step
    assert len(run.waits) == 11
    assert proposer.counters.used == 11
    assert proposer.counters.invalid == proposer.counters.stale == 0
    assert run.stats.stale_proposals == run.stats.invalid_proposals == run.stats.drafter_changes == 0
    assert not drafter.fake.violations
    for proposal in run.proposals:
        assert bool(proposal.distributions) == (rule is VerificationRule.REJECTION)


def test_the_session_tells_the_drafter_everything(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Empty()) as drafter:
        connected(proposer, drafter)
        request = generation_request(SEQUENCE, (drafter.endpoint,))
        run_request(proposer, request, SEQUENCE)
        opening = drafter.fake.opens[0]
        assert opening.token_ids == request.prompt_token_ids
        assert (opening.seed, opening.rule, opening.budget) == (request.seed, request.rule, request.budget)
        assert opening.prompt_tokens == 5
        assert eventually(lambda: bool(drafter.fake.closes))
        told = [*opening.token_ids, *(t for commit in drafter.fake.commits for t in commit.token_ids)]
        assert told == SEQUENCE
        assert not drafter.fake.violations


def test_sessions_share_one_stream_and_one_frame_a_step(proposer: RemoteProposer) -> None:
    sequences = [answer(salt=salt) for salt in range(8)]
    with ThreadedDrafter(Oracle(sequences)) as drafter:
        connected(proposer, drafter)
        runs = [
            Running(proposer, generation_request(s, (drafter.endpoint,)), s, key=key).open()
            for key, s in enumerate(sequences)
        ]
        frames_before = drafter.fake.frames
        wants = {run.key: want for run in runs for want in run.want().values()}
        proposer.wait(wants, 1.0)
        assert set(proposer.collect(wants)) == set(range(8))
        for run in runs:
            run.commit_plainly()
        proposer.flush()
        assert eventually(lambda: len(drafter.fake.commits) == 8)
        assert drafter.fake.frames <= frames_before + 9  # at most the opens, then one for all commits
        assert len(drafter.fake.hellos) == 1


def test_an_empty_proposal_ends_the_wait_at_once(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Empty()) as drafter:
        connected(proposer, drafter)
        run = run_request(proposer, generation_request(SEQUENCE[:15], (drafter.endpoint,)), SEQUENCE[:15])
    assert run.committed == SEQUENCE[:15]
    assert not run.proposals
    assert max(run.waits) < 0.4  # of 0.5


def test_without_a_drafter_nothing_waits(proposer: RemoteProposer) -> None:
    nobody = DrafterEndpoint("gone", "127.0.0.1:1")
    run = run_request(proposer, generation_request(SEQUENCE, (nobody,)), SEQUENCE)
    assert run.committed == SEQUENCE
    assert max(run.waits) < 0.2
    assert proposer.counters.sessions == 0


@pytest.mark.parametrize(
    ("mode", "budget"), [(SpeculationMode.OFF, BUDGET), (SpeculationMode.AUTO, TreeBudget(4, 2, 0))]
)
def test_requests_that_do_not_speculate_open_nothing(
    proposer: RemoteProposer, mode: SpeculationMode, budget: TreeBudget
) -> None:
    with ThreadedDrafter(Oracle([SEQUENCE])) as drafter:
        connected(proposer, drafter)
        request = generation_request(SEQUENCE, (drafter.endpoint,), mode=mode, budget=budget)
        run = run_request(proposer, request, SEQUENCE)
        assert not run.proposals
        assert not drafter.fake.opens


def test_a_pause_costs_no_traffic_and_one_commit_catches_up(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Oracle([SEQUENCE])) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        assert run.step() == 4
        run.step(paused=True)
        assert eventually(lambda: len(drafter.fake.commits) == 2)
        frames = drafter.fake.frames
        for _ in range(5):
            run.step(paused=True)
            assert run.waits[-1] < 0.2
        assert drafter.fake.frames == frames
        run.step()  # resumes with its commit
        assert run.step() == 4
        run.close()
        resumed = next(c for c in drafter.fake.commits[2:])
        assert len(resumed.token_ids) == 6
        assert not drafter.fake.violations


def test_a_smaller_budget_cuts_the_tree(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Oracle([SEQUENCE])) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        wants = run.want()
        proposer.wait(wants, 1.0)
        small = proposer.collect({1: Want(5, TreeBudget(1, 1, 1))})[1]
        assert small.tree.token_ids == (SEQUENCE[5],)


def test_a_late_proposal_is_used_below_the_committed_path(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Late(Oracle([SEQUENCE]), 0.05)) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        only_first_answer(drafter)
        run.step(timeout_s=0.0)  # commits one token plainly
        assert not run.proposals
        time.sleep(0.08)
        accepted = run.step(timeout_s=0.0)
        assert accepted == 3  # 4 were drafted, one of them is committed already
        assert proposer.counters.late == 1
        assert run.stats.stale_proposals == 0
        run.close()


def test_a_stale_proposal_is_counted(proposer: RemoteProposer) -> None:
    other = [*SEQUENCE[:5], *answer(salt=5)[5:]]
    with ThreadedDrafter(Late(Oracle([other]), 0.2)) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        only_first_answer(drafter)
        run.step(timeout_s=0.0)
        assert eventually(lambda: not proposer.collect({}) and proposer.counters.proposals == 1)
        run.step(timeout_s=0.0)
        assert not run.proposals
        assert run.stats.stale_proposals == proposer.counters.stale == 1
        assert run.stats.invalid_proposals == 0
        run.close()


def test_always_one_token_behind_is_still_useful(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Stale(Oracle([SEQUENCE]), lag=1)) as drafter:
        connected(proposer, drafter)
        run = run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE)
    assert run.committed == SEQUENCE
    assert run.proposals
    assert run.stats.invalid_proposals == 0


def test_random_trees_never_break_anything(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(RandomTrees(seed=3)) as drafter:
        connected(proposer, drafter)
        for key, rule in enumerate((VerificationRule.COUPLED, VerificationRule.REJECTION)):
            request = generation_request(SEQUENCE, (drafter.endpoint,), rule=rule)
            run = run_request(proposer, request, SEQUENCE, key=key)
            assert run.committed == SEQUENCE
    assert proposer.counters.invalid == 0


def test_a_drafter_that_dies_and_comes_back_is_attached_again(proposer: RemoteProposer) -> None:
    drafter = ThreadedDrafter(Oracle([SEQUENCE])).start()
    connected(proposer, drafter)
    run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
    assert run.step() == 4
    drafter.stop()
    assert eventually(lambda: not proposer.connect([drafter.address]))
    run.step()
    assert run.waits[-1] < 0.2
    drafter.start()
    try:
        assert proposer.connect([drafter.address], 3.0)
        run.step()  # opens the session again
        assert run.step() == 4
        run.close()
        assert [o.epoch for o in drafter.fake.opens] == [1, 2]
        assert proposer.counters.reattachments == 1
        assert run.stats.drafter_changes == 1  # another incarnation
        assert not drafter.fake.violations
    finally:
        drafter.stop()


def test_a_stream_that_dies_mid_request_loses_no_token(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Dying(Oracle([SEQUENCE]), after=2, times=3)) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        while not run.done:
            run.step()
            proposer.connect([drafter.address], 1.0)
        run.close()
    assert run.committed == SEQUENCE
    assert max(run.waits) < 0.4
    assert proposer.counters.reattachments >= 2
    assert proposer.counters.lost >= 2
    assert run.stats.drafter_changes == 0  # the same incarnation each time


def test_the_next_drafter_takes_over(proposer: RemoteProposer) -> None:
    with (
        ThreadedDrafter(Dying(Oracle([SEQUENCE]), after=1, times=99)) as first,
        ThreadedDrafter(Oracle([SEQUENCE])) as second,
    ):
        connected(proposer, first, second)
        request = generation_request(SEQUENCE, (first.endpoint, second.endpoint))
        run = run_request(proposer, request, SEQUENCE)
        assert second.fake.opens
    assert run.committed == SEQUENCE
    assert run.stats.drafter_changes >= 1


def test_a_full_drafter_passes_the_session_on(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(OverCapacity()) as full, ThreadedDrafter(Oracle([SEQUENCE])) as good:
        connected(proposer, full, good)
        run = run_request(proposer, generation_request(SEQUENCE, (full.endpoint, good.endpoint)), SEQUENCE)
    assert run.proposals
    assert proposer.counters.session_errors == 1


def test_max_sessions_and_context_length_are_respected(proposer: RemoteProposer) -> None:
    narrow = ThreadedDrafter(ScriptedDrafter(Oracle([SEQUENCE]), max_sessions=2))
    short = ThreadedDrafter(ScriptedDrafter(Oracle([SEQUENCE]), context_length=5))
    with narrow, short:
        connected(proposer, narrow, short)
        request = generation_request(SEQUENCE, (narrow.endpoint, short.endpoint))
        runs = [Running(proposer, request, SEQUENCE, key=key).open() for key in range(4)]
        assert eventually(lambda: len(narrow.fake.opens) == 2)
        runs[0].close()
        assert eventually(lambda: len(narrow.fake.opens) == 3)
        assert not short.fake.opens


def test_an_unused_drafter_is_disconnected() -> None:
    proposer = remote_proposer(idle_s=0.05)
    with ThreadedDrafter(Oracle([SEQUENCE])) as drafter:
        connected(proposer, drafter)
        run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE)
        time.sleep(0.1)
        proposer.flush()
        assert proposer.links() == ()
        connected(proposer, drafter)
        assert len(drafter.fake.hellos) == 2
    proposer.shutdown()


def test_it_says_when_a_proposal_is_due(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Late(Oracle([SEQUENCE]), delay_s=0.05)) as drafter:
        connected(proposer, drafter)
        assert proposer.due({}) == {}
        run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE)
        [link] = proposer.links()
        assert link.response_ms is not None
        assert 45.0 < link.response_ms < 500.0
        request = generation_request(SEQUENCE, (drafter.endpoint,))
        prompt = request.prompt_token_ids
        proposer.open(DraftSession(2, request, prompt, GenerationStats()))
        proposer.flush()
        wants = {2: Want(len(prompt), BUDGET), 3: Want(len(prompt), BUDGET)}
        due = proposer.due(wants)
        assert set(due) == {2}, "nobody knows request 3"
        assert due[2][0] is not None
        assert 0.0 <= due[2][0] <= link.response_ms
        proposer.wait(wants, 5.0)
        assert proposer.due(wants) == {}, "what is in is not due"
