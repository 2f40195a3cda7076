"""`MedusaProposer`: guesses of heads that read the state from which the root was chosen.

Every verify step gives the target's last hidden state behind each committed token. Of the last one the heads guess the
tokens that follow, all at once, so that a whole tree costs two small products and no forward of any model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from workers.core.draft_session import SessionOpening
from workers.core.proposal import DraftDistribution, Proposal
from workers.core.token_tree import ROOT, TokenTree
from workers.drafting.expansion import Drawn, Expander
from workers.drafting.shortlist import RowBuffer
from workers.drafting.tree import Node
from workers.medusa.checkpoint import HeadsCheckpoint
from workers.medusa.fitted import FittedHeads, fit_heads
from workers.medusa.tree import Choice, choose_tree, tree_within, usual_accuracies
from workers.models.loaded import LoadedModel
from workers.proposers.base import CommitUpdate, DraftSession, Want

__all__ = ["MedusaProposer"]

MAX_NODES = 64  # of the tree for heads that come without one


@dataclass
class _Session:
    expander: Expander
    base_len: int
    root_token: int
    hidden: torch.Tensor | None = None  # [hidden_size]; the state that the root was chosen from
    paused: bool = False


class MedusaProposer:
    """A `Proposer` inside the verifier.

    Children are drawn as everywhere (`workers.drafting.expansion`); which ranks are in the tree was chosen when the
    heads were trained, and does not depend on what is drawn: cutting a tree that way keeps `rejection` exact.
    """

    in_process = True

    def __init__(
        self, heads: FittedHeads, choices: tuple[Choice, ...], *, vocab_size: int, eos_token_ids: Sequence[int]
    ) -> None:
        self._heads = heads
        self._choices = choices
        self._vocab_size = vocab_size
        self._eos = tuple(eos_token_ids)
        self._buffer = RowBuffer(heads.device)
        self._sessions: dict[int, _Session] = {}

    @staticmethod
    def load(ref: str, loaded: LoadedModel) -> "MedusaProposer":
        """Heads of a folder for a loaded target; raises `ConfigurationError` when they do not fit it."""
        heads = fit_heads(HeadsCheckpoint.read(ref), loaded)
        accuracies = heads.accuracies or usual_accuracies(heads.num_heads)
        choices = heads.choices or choose_tree(accuracies, MAX_NODES)
        return MedusaProposer(heads, choices, vocab_size=loaded.vocab_size, eos_token_ids=loaded.eos_token_ids)

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    def open(self, session: DraftSession) -> None:
        expander = Expander(
            SessionOpening.of(session.request, session_id=session.key, token_ids=session.token_ids),
            vocab_size=self._vocab_size,
            eos_token_ids=self._eos,
            buffer=self._buffer,
            token_map=self._heads.token_map,
        )
        self._sessions[session.key] = _Session(expander, len(session.token_ids), session.token_ids[-1])

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        """Nothing ever has to be waited for."""

    @torch.inference_mode()
    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        ready: list[tuple[int, _Session, tuple[Choice, ...]]] = []
        for key, want in wants.items():
            session = self._sessions.get(key)
            if session is None or session.paused or session.hidden is None or session.base_len != want.base_len:
                continue
            if choices := tree_within(self._choices, want.budget):
                ready.append((key, session, choices))
        if not ready:
            return {}
        states = torch.stack([session.hidden for _, session, _ in ready if session.hidden is not None])
        rows = self._heads(states)  # [sessions, heads, v]
        drafted = {key: _draft(session, choices, rows[i]) for i, (key, session, choices) in enumerate(ready)}
        return {key: proposal for key, proposal in drafted.items() if len(proposal.tree)}

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            session = self._sessions.get(update.key)
            if session is None:
                continue
            session.paused = update.paused
            if update.token_ids:
                session.expander.commit(update.token_ids)
                session.base_len = update.base_len + len(update.token_ids)
                session.root_token = update.token_ids[-1]
                session.hidden = None if update.hidden is None else update.hidden[-1]

    def close(self, key: int) -> None:
        self._sessions.pop(key, None)

    def flush(self) -> None:
        """Nothing is sent anywhere."""

    def shutdown(self) -> None:
        self._sessions.clear()


def _draft(session: _Session, choices: tuple[Choice, ...], rows: torch.Tensor) -> Proposal:
    """The tree of `choices` with the tokens that the heads' logits `rows` [heads, v] put in their places."""
    root = Node(session.root_token, session.base_len - 1, None, 0.0, 0)
    nodes: dict[Choice, Node] = {(): root}
    order = {choice: number for number, choice in enumerate(choices, 1)}
    levels = _widths(choices)
    width = max(max(level.values()) for level in levels)
    shared = _drawn_by_depth(session.expander, root, rows[: len(levels)], width)
    for depth, widths in enumerate(levels):
        parents = [choice for choice in widths if choice in nodes and not nodes[choice].terminal]
        if not parents:
            break
        if shared:
            drawn = [shared[depth]] * len(parents)
        else:
            logits = rows[depth].expand(len(parents), -1)  # heads do not look at the path, but what is drawn may
            drawn = session.expander.children(logits, [nodes[choice] for choice in parents], max(widths.values()))
        for parent, (candidates, distribution) in zip(parents, drawn, strict=True):
            node, bound = nodes[parent], 0.0
            node.distribution = distribution
            for rank, candidate in enumerate(candidates[: widths[parent]]):
                bound = min(bound, candidate.log_survival)
                choice = (*parent, rank)
                survival = node.log_survival + bound
                nodes[choice] = Node(
                    candidate.token, node.position + 1, node, survival, order[choice], candidate.terminal
                )
    return _proposal(session.base_len, [choice for choice in choices if choice in nodes], nodes)


def _widths(choices: Sequence[Choice]) -> list[dict[Choice, int]]:
    """For each depth: the nodes with children there, and how many."""
    levels: list[dict[Choice, int]] = [{} for _ in range(max(map(len, choices)))]
    for choice in choices:
        level = levels[len(choice) - 1]
        level[choice[:-1]] = level.get(choice[:-1], 0) + 1
    return levels


def _drawn_by_depth(expander: Expander, root: Node, rows: torch.Tensor, width: int) -> list[Drawn]:
    """What all nodes of a depth have for children, for every depth at once; [] if it depends on the node."""
    if not expander.same_at_equal_depth:
        return []
    places = [Node(root.token, root.position + depth, None, 0.0, depth) for depth in range(len(rows))]
    return expander.children(rows, places, width)


def _proposal(base_len: int, listed: Sequence[Choice], nodes: Mapping[Choice, Node]) -> Proposal:
    index = {(): ROOT} | {choice: number for number, choice in enumerate(listed)}
    parents = tuple(index[choice[:-1]] for choice in listed)
    distributions: dict[int, DraftDistribution] = {}
    for choice, node in nodes.items():
        if node.distribution is not None and index[choice] in parents:
            distributions[index[choice]] = node.distribution
    tokens = tuple(nodes[choice].token for choice in listed)
    survival = tuple(min(0.0, nodes[choice].log_survival) for choice in listed)
    return Proposal(
        base_len, TokenTree(tokens, parents), distributions, survival if all(map(math.isfinite, survival)) else ()
    )
