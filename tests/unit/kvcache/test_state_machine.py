"""State machine over block pool, prefix cache and tree commit: every visible slot holds exactly its own prefix.

An engine without a model: the "K/V" of a token is a number for the whole prefix up to it (cache salt included), as
true K/V is a function of it. A wrongly shared, overwritten or misplaced slot therefore holds a wrong number.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from workers.core.block_hash import BlockHasher
from workers.core.token_tree import ROOT, TokenTree
from workers.kvcache.manager import BlockTable, KvCacheManager

MAX_RUNNING = 4
MAX_TOKENS = 40
NOTHING = -1

TOKEN = st.integers(0, 1)  # few tokens: prefixes meet often
TOKENS = st.lists(TOKEN, min_size=1, max_size=9)
SALT = st.sampled_from(["", "", "", "tenant"])


@dataclass(eq=False)
class Sequence:
    salt: str
    tokens: list[int]  # committed; the last one is the root, unless a prefill is under way
    table: BlockTable
    epoch: int  # of the weights that its K/V stem from


@st.composite
def token_trees(draw: st.DrawFn) -> TokenTree:
    tree = TokenTree.empty()
    for _ in range(draw(st.integers(0, 6))):
        parent, token = draw(st.integers(ROOT, len(tree) - 1)), draw(TOKEN)
        if tree.child_with_token(parent, token) is None:
            tree = TokenTree((*tree.token_ids, token), (*tree.parent_indices, parent))
    return tree


class EngineWithoutModel(RuleBasedStateMachine):
    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4]),
        num_blocks=st.integers(3, 10),
        prefix_caching=st.sampled_from([True, True, True, False]),
        beginning=st.lists(TOKEN, min_size=1, max_size=16),
    )
    def start(self, block_size: int, num_blocks: int, prefix_caching: bool, beginning: list[int]) -> None:
        self.block_size = block_size
        self.manager = KvCacheManager(
            num_blocks=num_blocks,
            block_size=block_size,
            hasher=BlockHasher("model", block_size),
            prefix_caching=prefix_caching,
        )
        self.storage = np.full(num_blocks * block_size, NOTHING, dtype=np.int64)  # K/V by slot
        self.running: list[Sequence] = []
        self.preempted: list[tuple[str, list[int]]] = []
        self.history = [beginning]
        self.replayed: set[int] = set()
        self.epoch = 0  # "weights": changes with every reset of the prefix cache
        self.admit("", beginning)

    # --- the engine ---

    def key_value(self, sequence: Sequence, prefix: list[int]) -> int:
        return abs(hash((sequence.epoch, sequence.salt, *prefix)))

    def write(self, sequence: Sequence, slot: int, prefix: list[int]) -> None:
        self.storage[slot] = self.key_value(sequence, prefix)

    def admit(self, salt: str, tokens: list[int]) -> None:
        sequence = Sequence(salt, list(tokens), self.manager.open(tokens, salt), self.epoch)
        table = sequence.table
        assert table.num_cached_tokens % self.block_size == 0
        assert table.num_cached_tokens < len(tokens)
        if table.num_cached_tokens:
            event("prefix hit")
        self.running.append(sequence)
        self.history.append(list(tokens))

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        table = sequence.table
        before = (table.block_ids, self.manager.num_free_blocks, self.manager.snapshot())
        if self.manager.reserve(table, num_tokens):
            assert table.capacity >= num_tokens
            return True
        assert (table.block_ids, self.manager.num_free_blocks, self.manager.snapshot()) == before
        missing = -(-num_tokens // self.block_size) - len(table.block_ids)
        assert missing > self.manager.num_free_blocks  # refused only when it must be
        event("pool exhausted")
        return False

    def stop(self, sequence: Sequence) -> None:
        self.manager.close(sequence.table)
        self.running.remove(sequence)

    def preempt(self, sequence: Sequence) -> None:
        self.stop(sequence)
        self.preempted.append((sequence.salt, sequence.tokens))

    def compute_committed(self, sequence: Sequence, end: int) -> None:
        for i in range(sequence.table.num_computed, end):
            self.write(sequence, int(sequence.table.slots[i]), sequence.tokens[: i + 1])

    def pick(self, index: int) -> Sequence:
        return self.running[index % len(self.running)]

    # --- what can happen ---

    @precondition(lambda self: len(self.running) < MAX_RUNNING)
    @rule(salt=SALT, index=st.integers(0, 99), keep=st.integers(0, MAX_TOKENS), more=TOKENS)
    def admit_like_an_earlier_one(self, salt: str, index: int, keep: int, more: list[int]) -> None:
        beginning = self.history[index % len(self.history)][:keep]
        self.admit(salt, [*beginning, *more][:MAX_TOKENS])

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 99), count=st.integers(1, 8))
    def prefill_a_chunk(self, index: int, count: int) -> None:
        sequence = self.pick(index)
        end = min(sequence.table.num_computed + count, len(sequence.tokens) - 1)
        if self.reserve(sequence, end):
            self.compute_committed(sequence, end)
            self.manager.commit(sequence.table, sequence.tokens, end)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 99), tree=token_trees(), accepted=st.integers(0, 99), bonus=TOKEN, trim=st.booleans())
    def step(self, index: int, tree: TokenTree, accepted: int, bonus: int, trim: bool) -> None:
        """Root + tree: write all, accept a path, compact it, commit, maybe give back the rest."""
        sequence = self.pick(index)
        base_len = len(sequence.tokens)
        table = sequence.table
        if not self.reserve(sequence, base_len + len(tree)):
            self.preempt(sequence)
            return
        self.compute_committed(sequence, base_len)
        for node in range(len(tree)):
            path_tokens = [tree.token_ids[n] for n in tree.path(node)]
            self.write(sequence, int(table.slots[base_len + node]), sequence.tokens + path_tokens)
        path = tree.path(accepted % (len(tree) + 1) - 1)  # from ROOT (nothing accepted) to any node
        sources = table.slots[[base_len + node for node in path]]
        self.storage[table.slots[base_len : base_len + len(path)]] = self.storage[sources]  # read before written
        sequence.tokens += [*(tree.token_ids[node] for node in path), bonus]
        self.manager.commit(table, sequence.tokens, base_len + len(path))
        if trim:
            self.manager.trim(table, base_len + len(path))
        if path and path != tuple(range(len(path))):
            event("path compacted")
        if len(sequence.tokens) >= MAX_TOKENS:
            self.stop(sequence)
        self.history.append(list(sequence.tokens))

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 99))
    def preempt_one(self, index: int) -> None:
        self.preempt(self.pick(index))

    @precondition(lambda self: self.preempted and len(self.running) < MAX_RUNNING)
    @rule()
    def resume(self) -> None:
        self.admit(*self.preempted.pop(0))

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 99))
    def finish(self, index: int) -> None:
        self.stop(self.pick(index))

    @precondition(lambda self: self.replayed)
    @rule(sure=st.integers(0, 3))
    def load_other_weights(self, sure: int) -> None:
        if sure == 0:
            self.manager.reset_prefix_cache()
            self.epoch += 1

    @rule()
    def replay_events(self) -> None:
        events = self.manager.take_events()
        if events.cleared:
            self.replayed.clear()
        assert set(events.removed) <= self.replayed
        assert self.replayed.isdisjoint(events.stored)
        self.replayed.difference_update(events.removed)
        self.replayed.update(events.stored)
        assert sorted(self.replayed) == sorted(self.manager.snapshot())
        if events.removed:
            event("evicted")

    # --- what must hold at all times ---

    @invariant()
    def books_balance(self) -> None:
        self.manager.check_invariants()

    @invariant()
    def every_visible_slot_holds_its_own_prefix(self) -> None:
        for sequence in self.running:
            visible = self.storage[sequence.table.slots[: sequence.table.num_computed]]
            expected = [self.key_value(sequence, sequence.tokens[: i + 1]) for i in range(sequence.table.num_computed)]
            assert visible.tolist() == expected

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        self.replay_events()
        for sequence in list(self.running):
            self.stop(sequence)
        self.manager.check_invariants()
        assert self.manager.num_free_blocks == self.manager.num_blocks


TestEngineWithoutModel = EngineWithoutModel.TestCase
TestEngineWithoutModel.settings = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),  # Phase.explain takes minutes here
)
