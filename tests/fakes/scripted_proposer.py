"""Proposers that follow a script, inside the engine's process: helpful, useless and hostile ones."""

import random
from collections.abc import Callable, Mapping, Sequence

from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.proposers.base import CommitUpdate, DraftSession, Want

__all__ = ["ScriptedProposer", "always", "oracle", "random_tree", "with_distributions"]

Script = Callable[[Sequence[int], TreeBudget], TokenTree]
"""(committed tokens, budget) -> tree"""


def always(token: int) -> Script:
    """The same chain of one token, whatever was committed."""
    return lambda _, budget: TokenTree.chain([token] * budget.max_depth)


def random_tree(vocab_size: int, seed: int = 0) -> Script:
    """A random tree that fills the budget of nodes."""
    rng = random.Random(seed)

    def script(_: Sequence[int], budget: TreeBudget) -> TokenTree:
        tokens: list[int] = []
        parents: list[int] = []
        depths = {ROOT: 0}
        for node in range(budget.max_nodes):
            parent = rng.choice([n for n, depth in depths.items() if depth < budget.max_depth])
            taken = {tokens[n] for n in range(node) if parents[n] == parent}
            tokens.append(rng.choice([t for t in range(vocab_size) if t not in taken]))
            parents.append(parent)
            depths[node] = depths[parent] + 1
        return TokenTree(tuple(tokens), tuple(parents))

    return script


def oracle(answers: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int, seed: int = 0) -> Script:
    """Knows the answer of each prompt; hides the right path among wrong siblings, and sometimes errs on purpose."""
    rng = random.Random(seed)

    def script(committed: Sequence[int], budget: TreeBudget) -> TokenTree:
        prompt = next(p for p in answers if tuple(committed[: len(p)]) == p)
        future = list(answers[prompt])[len(committed) - len(prompt) :][: budget.max_depth]
        tokens: list[int] = []
        parents: list[int] = []
        parent = ROOT
        for token in future:
            if len(tokens) + 2 > budget.max_nodes:
                break
            wrong = (token + 1 + rng.randrange(vocab_size - 1)) % vocab_size
            pair = [wrong, token] if rng.random() < 0.7 else [token, wrong]
            for candidate in pair:
                tokens.append(candidate)
                parents.append(parent)
            parent = len(tokens) - 2 + pair.index(token if rng.random() < 0.9 else wrong)
        return TokenTree(tuple(tokens), tuple(parents))

    return script


def with_distributions(proposal: Proposal, vocab_size: int, rng: random.Random) -> Proposal:
    """Attach a random distribution to every inner node that gives its children some mass."""
    distributions = {}
    for node, children in proposal.tree.children.items():
        tokens = {proposal.tree.token_ids[c] for c in children} | {rng.randrange(vocab_size) for _ in range(4)}
        weights = {token: rng.random() + 0.05 for token in sorted(tokens)}
        total = sum(weights.values())
        distributions[node] = DraftDistribution(tuple(weights), tuple(w / total for w in weights.values()))
    return Proposal(proposal.base_len, proposal.tree, distributions)


class ScriptedProposer:
    """Implements `Proposer` from a script; checks that the engine keeps its side of the contract."""

    in_process = False

    def __init__(self, script: Script, *, silent_every: int = 0) -> None:
        self._script = script
        self._silent_every = silent_every
        self._tokens: dict[int, list[int]] = {}
        self.calls = 0
        self.num_proposed = 0

    @property
    def open_keys(self) -> set[int]:
        return set(self._tokens)

    def open(self, session: DraftSession) -> None:
        assert session.key not in self._tokens
        self._tokens[session.key] = list(session.token_ids)

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        assert timeout_s > 0

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        proposals: dict[int, Proposal] = {}
        for key, want in wants.items():
            self.calls += 1
            assert len(self._tokens[key]) == want.base_len, "the engine told of every commit"
            if self._silent_every and self.calls % self._silent_every == 0:
                continue
            tree = self._script(self._tokens[key], want.budget)
            proposals[key] = Proposal(want.base_len, tree.prefix(want.budget.max_nodes, want.budget.max_depth))
            self.num_proposed += len(proposals[key].tree)
        return proposals

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            assert len(self._tokens[update.key]) == update.base_len
            self._tokens[update.key].extend(update.token_ids)

    def close(self, key: int) -> None:
        del self._tokens[key]

    def flush(self) -> None:
        """Everything is immediate here."""

    def shutdown(self) -> None:
        """Nothing to give back."""
