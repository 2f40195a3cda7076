"""Drafters that say nothing, or nothing to one session, over real gRPC."""

import time

import pytest

from tests.fakes.behaviours import DeafTo, Oracle, Silent
from tests.fakes.scripted_drafter import ThreadedDrafter
from tests.unit.proposers.driver import (
    Running,
    answer,
    connected,
    eventually,
    generation_request,
    remote_proposer,
    run_request,
)
from workers.proposers.remote import RemoteProposer

SEQUENCE = answer()


def test_a_silent_drafter_costs_a_bounded_number_of_waits(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Silent()) as drafter:
        connected(proposer, drafter)
        request = generation_request(SEQUENCE, (drafter.endpoint,))
        run = run_request(proposer, request, SEQUENCE, timeout_s=0.05, step_s=0.02)
        again = run_request(proposer, request, SEQUENCE, timeout_s=0.05, key=2)
        assert proposer.links()[0].silent
    assert [wait > 0.04 for wait in run.waits].count(True) == 1, "one step's wait"
    assert max(run.waits) < 0.2
    assert max(again.waits) < 0.04
    assert proposer.counters.silences == 1


def test_a_silent_drafter_is_left_for_a_better_one(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Silent()) as silent, ThreadedDrafter(Oracle([SEQUENCE])) as good:
        connected(proposer, silent, good)
        request = generation_request(SEQUENCE, (silent.endpoint, good.endpoint))
        run = run_request(proposer, request, SEQUENCE, timeout_s=0.05, step_s=0.02)
        assert eventually(lambda: silent.fake.closes == [1])
    assert run.proposals
    assert run.stats.drafter_changes == 1


@pytest.mark.parametrize("another", [True, False])
@pytest.mark.parametrize("patience_s", [0.1, 60.0])
def test_a_session_leaves_a_drafter_that_answers_all_others(another: bool, patience_s: float) -> None:
    """But not one that has had little time: it may be reading a long prompt."""
    sequence = answer(salt=1)
    knows = Oracle([SEQUENCE, sequence])
    proposer = remote_proposer(unanswered_s=patience_s)
    with ThreadedDrafter(DeafTo(knows, session_id=2)) as deaf, ThreadedDrafter(knows) as good:
        drafters = (deaf, good) if another else (deaf,)
        connected(proposer, *drafters)
        endpoints = tuple(drafter.endpoint for drafter in drafters)
        heard = Running(proposer, generation_request(SEQUENCE, endpoints), SEQUENCE, key=1).open()
        ignored = Running(proposer, generation_request(sequence, endpoints), sequence, key=2).open()
        while not ignored.done:
            ignored.step(timeout_s=0.02)
            if not heard.done:
                heard.step(timeout_s=0.5)
            time.sleep(0.01)
        leaves = another and patience_s < 1.0
        assert len(deaf.fake.closes) == leaves
        proposer.shutdown()
    assert ignored.committed == sequence
    assert bool(ignored.proposals) == leaves
    assert ignored.stats.drafter_changes == leaves
    assert heard.stats.drafter_changes == 0
    assert [wait > 0.015 for wait in ignored.waits].count(True) <= 4, "it is waited for at most three times"


def test_drafters_that_were_silent_for_long_are_used_again_when_they_are_back() -> None:
    sequence = answer(length=200)
    proposer = remote_proposer(unanswered_s=0.1)
    with ThreadedDrafter(Oracle([sequence])) as one, ThreadedDrafter(Oracle([sequence])) as other:
        connected(proposer, one, other)
        run = Running(proposer, generation_request(sequence, (one.endpoint, other.endpoint)), sequence).open()
        for drafter in (one, other):
            drafter.fake.behaviour = Silent()
        for _ in range(40):
            run.step(timeout_s=0.01)
            time.sleep(0.01)
        for drafter in (one, other):
            drafter.fake.behaviour = Oracle([sequence])
            drafter.stop()
            drafter.start()
        connected(proposer, one, other)
        before = len(run.proposals)
        while not run.done:
            run.step(timeout_s=0.5)
        proposer.shutdown()
    assert run.committed == sequence
    assert len(run.proposals) > before


def test_a_drafter_that_speaks_again_is_waited_for_again(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Silent()) as drafter:
        connected(proposer, drafter)
        run = Running(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE).open()
        for _ in range(4):
            run.step(timeout_s=0.05)
            time.sleep(0.05)
        assert proposer.links()[0].silent
        drafter.fake.behaviour = Oracle([SEQUENCE])
        run.step(timeout_s=0.05)  # its commit is answered, though nobody waits
        time.sleep(0.05)
        assert run.step(timeout_s=0.05) == 4
        assert not proposer.links()[0].silent
        run.close()
