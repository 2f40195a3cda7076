"""`LayerSkipProposer`: self-speculative decoding with an early exit.

The draft is the target's own layers 1..E with the shared head; verification runs the remaining layers only, from the
hidden states that drafting left, over the same K/V. Source: Elhoushi et al. 2024, "LayerSkip: Enabling early exit
inference and self-speculative decoding", section 4.3. Trees, sampling and batches over requests are ours: one forward
per level over the trees of all requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.core.config import LayerSkipConfig
from workers.core.draft_session import SessionOpening
from workers.core.proposal import Proposal
from workers.core.sampling_params import SpeculationMode
from workers.drafting.expansion import Expander
from workers.drafting.shortlist import RowBuffer
from workers.drafting.tree import Node
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.layerskip.draft import EarlyDraft
from workers.proposers.target_access import TargetAccess

__all__ = ["LayerSkipProposer"]


@dataclass
class _Session:
    expander: Expander
    root_token: int
    base_len: int
    paused: bool = False


class LayerSkipProposer:
    """A `Proposer` that drafts in `collect`, on the engine's thread, with the engine's model."""

    in_process = True

    def __init__(self, config: LayerSkipConfig) -> None:
        self._config = config
        self._target: TargetAccess | None = None
        self._buffer = RowBuffer()
        self._sessions: dict[int, _Session] = {}

    def attach(self, target: TargetAccess) -> None:
        """See `DraftsWithTarget`."""
        target.runner.split_at(self._config.exit_layer)
        self._target = target
        self._buffer = RowBuffer(target.runner.loaded.device)

    def open(self, session: DraftSession) -> None:
        if session.request.mode is not SpeculationMode.OFF:
            expander = self._expander(session)
            self._sessions[session.key] = _Session(expander, session.token_ids[-1], len(session.token_ids))

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        """Nothing ever has to be waited for."""

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        target = self._attached
        target.drafts.clear()
        drafts = self._start(wants)
        target.drafts.update(drafts)
        spare = len(wants)  # blocks that are left alone: drafting must not take what others need to go on
        while level := self._next_level(list(drafts.values()), spare):
            outputs = target.runner.exit_early([draft.chunk(nodes) for draft, nodes in level])
            for (draft, nodes), output in zip(level, outputs, strict=True):
                draft.absorb(nodes, output)
        proposals = {key: draft.proposal() for key, draft in drafts.items()}
        return {key: proposal for key, proposal in proposals.items() if len(proposal.tree)}

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            session = self._sessions.get(update.key)
            if session is not None:
                session.paused = update.paused
                if update.token_ids:
                    session.expander.commit(update.token_ids)
                    session.root_token = update.token_ids[-1]
                    session.base_len = update.base_len + len(update.token_ids)

    def close(self, key: int) -> None:
        self._sessions.pop(key, None)

    def flush(self) -> None:
        """Nothing is sent anywhere."""

    def shutdown(self) -> None:
        self._sessions.clear()

    @property
    def _attached(self) -> TargetAccess:
        if self._target is None:
            raise RuntimeError("the proposer is not attached to an engine's model")
        return self._target

    def _start(self, wants: Mapping[int, Want]) -> dict[int, EarlyDraft]:
        """A draft for each request that has, or gets, a slot for its root."""
        drafts: dict[int, EarlyDraft] = {}
        for key, want in wants.items():
            session = self._sessions.get(key)
            if session is None or session.paused or want.base_len != session.base_len or want.blocks is None:
                continue
            budget = want.budget
            if min(budget.max_depth, budget.max_width, budget.max_nodes) < 1:
                continue
            if self._attached.kv_cache.reserve(want.blocks, want.base_len):
                drafts[key] = EarlyDraft(
                    session.root_token,
                    want.base_len,
                    budget,
                    want.blocks,
                    session.expander,
                    self._config.min_survival,
                )
        return drafts

    def _next_level(self, drafts: Sequence[EarlyDraft], spare: int) -> list[tuple[EarlyDraft, list[Node]]]:
        """What each draft expands next, as far as there is memory for it."""
        level: list[tuple[EarlyDraft, list[Node]]] = []
        for draft in drafts:
            nodes = draft.wants()
            if nodes and nodes[0] is not draft.tree.root:
                nodes = nodes[: self._room(draft, len(nodes), spare)]
            if nodes:
                level.append((draft, nodes))
        return level

    def _room(self, draft: EarlyDraft, wanted: int, spare: int) -> int:
        """Nodes, at most `wanted`, that can get a slot."""
        kv_cache = self._attached.kv_cache
        tokens = draft.tokens_with(wanted)
        missing = -(-tokens // kv_cache.block_size) - len(draft.blocks.blocks)
        if missing > 0 and kv_cache.num_free_blocks - missing >= spare:
            kv_cache.reserve(draft.blocks, tokens)
        return min(wanted, draft.room())

    def _expander(self, session: DraftSession) -> Expander:
        loaded = self._attached.runner.loaded
        return Expander(
            SessionOpening.of(session.request, session_id=session.key, token_ids=session.token_ids),
            vocab_size=loaded.vocab_size,
            eos_token_ids=loaded.eos_token_ids,
            buffer=self._buffer,
        )
