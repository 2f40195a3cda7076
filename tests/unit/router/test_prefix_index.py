"""The index against a model of it: sets of blocks by slot."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.router.prefix_index import PrefixIndex

SLOTS = st.integers(0, 70)  # beyond a machine word
BLOCKS = st.lists(st.integers(0, 12), max_size=6)


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[int, set[int]] = {}
        self.expected: dict[tuple[int, int], float] = {}
        self.now = 0.0

    @rule(slot=SLOTS, blocks=BLOCKS)
    def store(self, slot: int, blocks: list[int]) -> None:
        self.index.store(slot, blocks)
        self.held.setdefault(slot, set()).update(blocks)

    @rule(slot=SLOTS, blocks=BLOCKS)
    def remove(self, slot: int, blocks: list[int]) -> None:
        self.index.remove(slot, blocks)
        self.held.get(slot, set()).difference_update(blocks)
        for block in blocks:
            self.expected.pop((slot, block), None)

    @rule(slot=SLOTS)
    def clear(self, slot: int) -> None:
        self.index.clear(slot)
        self.held.pop(slot, None)

    @rule(slot=SLOTS)
    def drop(self, slot: int) -> None:
        self.index.drop(slot)
        self.held.pop(slot, None)
        self.expected = {pair: until for pair, until in self.expected.items() if pair[0] != slot}

    @rule(slot=SLOTS, blocks=BLOCKS, ttl_s=st.sampled_from([5.0, 5.0, 1.0]))
    def expect(self, slot: int, blocks: list[int], ttl_s: float) -> None:
        self.index.expect(slot, blocks, self.now + ttl_s)
        unannounced = set(blocks) - self.held.get(slot, set())
        self.expected.update({(slot, block): self.now + ttl_s for block in unannounced})

    @rule(passed_s=st.floats(0.0, 4.0))
    def time_passes(self, passed_s: float) -> None:
        self.now += passed_s

    @rule(blocks=st.lists(st.integers(0, 12), max_size=8, unique=True))
    def match(self, blocks: list[int]) -> None:
        self.index.expire(self.now)
        found = self.index.match(blocks)
        for slot in range(71):
            held = self.held.get(slot, set())
            live = {block for (one, block), until in self.expected.items() if one == slot and until > self.now}
            surely = _leading(blocks, held | live)
            # Times of a pool never decrease; here they do: an expectation may outlive its time behind a later one.
            late = {block for (one, block), _ in self.expected.items() if one == slot}
            assert surely <= found.get(slot, 0) <= _leading(blocks, held | late)

    @invariant()
    def books_balance(self) -> None:
        self.index.check_invariants()


def _leading(blocks: list[int], held: set[int]) -> int:
    return next((i for i, block in enumerate(blocks) if block not in held), len(blocks))


TestModel = Model.TestCase


def test_expectations_end() -> None:
    index = PrefixIndex()
    index.expect(3, [1, 2], 10.0)
    index.expire(9.0)
    assert index.match([1, 2, 5]) == {3: 2}
    index.expect(3, [1], 15.0)  # once more
    index.expire(10.0)
    assert index.match([1, 2]) == {3: 1}
    index.expire(15.0)
    assert index.match([1, 2]) == {}
    index.check_invariants()


def test_what_a_replica_says_is_gone_is_not_expected_any_more() -> None:
    index = PrefixIndex()
    index.expect(0, [1, 2], 10.0)
    index.store(0, [1, 2])
    index.remove(0, [2])
    assert index.match([1, 2]) == {0: 1}


def test_a_cleared_replica_still_gets_what_was_sent_there() -> None:
    index = PrefixIndex()
    index.store(0, [7])
    index.expect(0, [1], 10.0)
    index.clear(0)
    assert (index.match([7]), index.match([1])) == ({}, {0: 1})
    index.drop(0)
    assert index.match([1]) == {}


def test_what_is_held_is_not_expected_as_well() -> None:
    index = PrefixIndex()
    index.store(0, [1])
    index.expect(0, [1, 2], 10.0)
    assert index.match([1, 2]) == {0: 2}
    index.clear(0)  # from now on, what its next messages say counts
    assert index.match([1, 2]) == {}
    index.store(0, [1])
    assert index.match([1, 2]) == {0: 2}
    index.check_invariants()


def test_many_replicas_and_chains() -> None:
    generator = random.Random(1)
    index, held = PrefixIndex(), {}
    for slot in range(300):
        held[slot] = generator.randrange(40)
        index.store(slot, range(held[slot]))
    assert index.match(list(range(30))) == {slot: min(n, 30) for slot, n in held.items() if n}
