"""`NgramProposer`: prompt lookup decoding, with trees.

The last n tokens are looked up in the request's own prompt and output
(`prompt_lookup_max` tokens first, down to `prompt_lookup_min`), and what
followed there is proposed. Where it was followed by different things, they are
merged into one trie, the most recent first. Idea: A. Saxena, "Prompt Lookup
Decoding" (2023); the names are vLLM's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.core.config import NgramConfig
from workers.core.proposal import Proposal, TreeBudget
from workers.core.sampling_params import SpeculationMode
from workers.core.token_tree import ROOT, TokenTree
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.ngram_index import NgramIndex

__all__ = ["NgramProposer"]


@dataclass
class _Session:
    index: NgramIndex
    paused: bool = False


class NgramProposer:
    """A `Proposer` that needs no model.

    Its guesses are certain, so under `rejection` they need no distributions: each is tried as a point mass.
    """

    in_process = True

    def __init__(self, config: NgramConfig) -> None:
        self._config = config
        self._sessions: dict[int, _Session] = {}

    def open(self, session: DraftSession) -> None:
        if session.request.mode is SpeculationMode.OFF:
            return
        index = NgramIndex(self._config.prompt_lookup_min, self._config.prompt_lookup_max, session.token_ids)
        self._sessions[session.key] = _Session(index)

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        """Nothing ever has to be waited for."""

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        found: dict[int, Proposal] = {}
        for key, want in wants.items():
            session = self._sessions.get(key)
            if session is None or session.paused or want.base_len != len(session.index.tokens):
                continue
            tree = _trie(session.index, want.budget)
            if len(tree):
                found[key] = Proposal(want.base_len, tree)
        return found

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            session = self._sessions.get(update.key)
            if session is not None:
                session.index.extend(update.token_ids)
                session.paused = update.paused

    def close(self, key: int) -> None:
        self._sessions.pop(key, None)

    def flush(self) -> None:
        """Nothing is sent anywhere."""

    def shutdown(self) -> None:
        self._sessions.clear()


def _trie(index: NgramIndex, budget: TreeBudget) -> TokenTree:
    """Merge up to `max_width` different continuations until the budget is spent."""
    tokens: list[int] = []
    parents: list[int] = []
    child_of: dict[tuple[int, int], int] = {}
    branches = 0
    for continuation in index.continuations(budget.max_depth):
        node, before = ROOT, len(tokens)
        for token in continuation:
            child = child_of.get((node, token))
            if child is None:
                if len(tokens) == budget.max_nodes:
                    return TokenTree(tuple(tokens), tuple(parents))
                child = child_of[(node, token)] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = child
        branches += len(tokens) > before
        if branches == budget.max_width:
            break
    return TokenTree(tuple(tokens), tuple(parents))
