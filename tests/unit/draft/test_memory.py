"""A full pool, a full drafter, and giving everything back."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.unit.draft.rig import BUDGET, VOCAB, Rig, opening
from workers.core.draft_session import SessionOpening
from workers.core.proposal import TreeBudget
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.draft.messages import FrameIn, SessionClose, SessionErrorCode
from workers.draft.scratch import ScratchSlots


def codes(rig: Rig) -> list[SessionErrorCode]:
    return [failure.code for failure in rig.failures]


def test_scratch_slots_are_given_and_taken_back() -> None:
    rig = Rig(num_blocks=4, block_size=4)
    scratch = ScratchSlots(rig.manager)
    first = scratch.take(3)
    assert first is not None
    assert scratch.take(14) is None
    assert scratch.num_blocks == 1
    scratch.give_back(first[:2])
    second = scratch.take(6)
    assert second is not None
    assert scratch.num_blocks == 2
    assert not set(second) & set(first[2:])
    scratch.check_invariants()
    scratch.clear()
    assert rig.manager.num_free_blocks == 4
    assert scratch.take(16) is not None
    scratch.clear()
    rig.assert_all_free()


def test_a_tree_without_memory_is_sent_as_it_is() -> None:
    rig = Rig(num_blocks=2, block_size=4)
    rig.open(opening(tokens=range(1, 8)))  # two blocks of context, none left for nodes
    rig.settle()
    assert rig.last().tree.max_depth == 1
    assert len(rig.last().tree) == BUDGET.max_width
    assert not rig.failures


def test_a_session_that_does_not_fit_is_refused_and_the_others_go_on() -> None:
    rig = Rig(num_blocks=4, block_size=4)
    rig.open(opening(1, range(1, 9)))
    rig.settle()
    rig.open(opening(2, range(20, 33)))
    rig.settle()
    assert codes(rig) == [SessionErrorCode.OVER_CAPACITY]
    assert "4 blocks" in rig.failures[0].message
    rig.commit(1, 8, (9,))
    rig.until_proposal(1)
    rig.close(1)
    rig.assert_all_free()


def test_trees_of_less_recently_used_sessions_make_room() -> None:
    rig = Rig(num_blocks=8, block_size=4, grow_ahead=0)
    rig.open(opening(1, range(1, 5)))
    rig.settle()
    rig.open(opening(2, range(20, 44)))  # six blocks: the first one's tree has to go
    rig.settle()
    assert rig.engine.num_pruned_trees == 1
    assert len(rig.last(2).tree) > 0
    tree = rig.last(1).tree
    rig.commit(1, 4, (tree.token_ids[0],))
    rig.settle()
    assert not rig.failures
    assert rig.last(1).base_len == 5
    assert rig.engine.num_pruned_trees == 2  # now the second one's


def test_cached_prefixes_give_way_before_trees_do() -> None:
    rig = Rig(num_blocks=8, block_size=4, grow_ahead=0)
    rig.open(opening(1, range(1, 17)))
    rig.settle()
    rig.close(1)
    rig.open(opening(2, range(20, 40)))
    rig.settle()
    assert len(rig.last(2).tree) == BUDGET.max_nodes
    assert rig.engine.num_pruned_trees == 0


def test_a_prefix_is_computed_once() -> None:
    rig = Rig()
    rig.open(opening(1, range(1, 14)))
    rig.settle()
    fed = rig.engine.counters.fed_tokens
    rig.open(opening(2, (*range(1, 14), 50)), opening(3, range(1, 14), salt="other"))
    rig.settle()
    assert rig.engine.counters.cached_tokens == 12
    assert rig.engine.counters.fed_tokens == fed + 2 + 13


def test_closing_twice_or_at_another_epoch_changes_nothing() -> None:
    rig = Rig()
    rig.open(opening(1, epoch=2))
    rig.close(1, epoch=1)
    assert rig.engine.num_sessions == 1
    rig.close(1, epoch=2)
    rig.close(1, epoch=2)
    rig.close(77)
    rig.assert_all_free()
    assert rig.engine.counters.stale_messages == 3
    assert not rig.failures


def test_open_and_close_in_one_frame() -> None:
    rig = Rig()
    rig.frame(FrameIn(0, VOCAB, opens=(opening(1),), closes=(SessionClose(1, 1),)))
    rig.assert_all_free()


def test_a_stream_that_ends_takes_only_its_own_sessions() -> None:
    rig = Rig()
    rig.open(opening(1), stream=1)
    rig.open(opening(1), opening(2), stream=2)
    rig.settle()
    rig.frame(FrameIn(2, VOCAB, end=True))
    assert rig.engine.num_sessions == 1
    rig.frame(FrameIn(1, VOCAB, end=True))
    rig.assert_all_free()


@dataclass
class Known:
    """What the machine knows of an open session."""

    opening: SessionOpening
    tokens: list[int] = field(default_factory=list)


class DrafterMachine(RuleBasedStateMachine):
    """Anything a verifier may do, on a pool that is too small: the books always balance, proposals always fit."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(num_blocks=12, block_size=4, max_sessions=4, max_tokens=16)
        self.known: dict[int, Known] = {}
        self.next_id = 1
        self.checked = 0

    @rule(
        length=st.integers(1, 20),
        verification=st.sampled_from(VerificationRule),
        temperature=st.sampled_from([0.0, 1.0]),
        budget=st.builds(TreeBudget, st.integers(0, 5), st.integers(0, 3), st.integers(0, 10)),
    )
    def open(self, length: int, verification: VerificationRule, temperature: float, budget: TreeBudget) -> None:
        tokens = [(self.next_id + i) % (VOCAB - 1) for i in range(length)]
        sampling = SamplingParams(temperature=temperature)
        message = opening(self.next_id, tokens, rule=verification, sampling=sampling, budget=budget)
        self.rig.open(message)
        self.known[self.next_id] = Known(message, tokens)
        self.next_id += 1
        self.forget_failed()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), follow=st.integers(0, 5), extra=st.integers(0, 2), paused=st.booleans())
    def commit(self, data: st.DataObject, follow: int, extra: int, paused: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        known = self.known[key]
        new: list[int] = []
        proposals = self.rig.proposals.get(key, [])
        if proposals and proposals[-1].base_len == len(known.tokens) and len(proposals[-1].tree):
            tree = proposals[-1].tree
            node = data.draw(st.integers(0, len(tree) - 1))
            new = [tree.token_ids[n] for n in tree.path(node)][:follow]
        new += [data.draw(st.integers(0, VOCAB - 2)) for _ in range(extra)]
        self.rig.commit(key, len(known.tokens), new, paused=paused)
        known.tokens += new
        self.forget_failed()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        self.rig.close(key)
        del self.known[key]

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.step()
        self.forget_failed()

    def forget_failed(self) -> None:
        self.rig.step()  # failures reach the sink with the next step
        for failure in self.rig.failures:
            assert failure.code is SessionErrorCode.OVER_CAPACITY
            self.known.pop(failure.session_id, None)

    @invariant()
    def proposals_fit(self) -> None:
        assert self.rig.engine.num_sessions == len(self.known)
        for key, known in self.known.items():
            for proposal in self.rig.proposals.get(key, [])[-1:]:
                assert proposal.base_len <= len(known.tokens)
                if known.opening.rule is VerificationRule.REJECTION:
                    proposal.check_distributions(VOCAB)
                else:
                    assert not proposal.distributions

    def teardown(self) -> None:
        for key in list(self.known):
            self.rig.close(key)
        self.rig.assert_all_free()


TestDrafter = DrafterMachine.TestCase
TestDrafter.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


@pytest.mark.slow
def test_the_drafter_machine_at_length() -> None:
    run_state_machine_as_test(
        DrafterMachine, settings=settings(max_examples=300, stateful_step_count=50, deadline=None)
    )
