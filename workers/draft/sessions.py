"""The drafter's sessions: opening, committing and closing them as frames come in."""

from dataclasses import dataclass

import torch

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.errors import InvalidRequestError
from workers.core.tracing import NO_SPAN, NO_TRACER, Tracer
from workers.draft.memory import TreeMemory
from workers.draft.messages import FrameIn, FrameOut, SessionClose, SessionErrorCode, SessionFailure, SessionProposal
from workers.draft.scratch import ScratchSlots
from workers.draft.session import Session, SessionKey, SessionLimits
from workers.drafting.expansion import Expander
from workers.drafting.shortlist import RowBuffer
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage

__all__ = ["DraftCounters", "DraftModelInfo", "SessionBook"]


@dataclass(frozen=True)
class DraftModelInfo:
    """What drafting needs to know about the draft model."""

    vocab_size: int
    context_length: int
    eos_token_ids: tuple[int, ...]
    device: torch.device | str = "cpu"
    token_map: torch.Tensor | None = None  # int64 [v], ascending: tokens that it has logits for; None = all


@dataclass
class DraftCounters:
    """Since the start. Never pre-divided."""

    forwards: int = 0
    fed_tokens: int = 0  # committed tokens computed
    opened_tokens: int = 0  # committed tokens that sessions were opened with
    cached_tokens: int = 0  # committed tokens found in the prefix cache
    expanded_nodes: int = 0
    proposals: int = 0
    proposed_nodes: int = 0
    hits: int = 0  # commits whose new root was a node of the tree
    misses: int = 0
    early_proposals: int = 0  # sent from what survived, without a forward
    opened: int = 0
    closed: int = 0
    failures: int = 0
    stale_messages: int = 0
    busy_s: float = 0.0  # spent on iterations that had something to do


class SessionBook:
    """All sessions of all streams. Owned by the engine's thread."""

    def __init__(
        self,
        manager: KvCacheManager,
        storage: KvStorage,
        model: DraftModelInfo,
        limits: SessionLimits,
        max_sessions: int,
        counters: DraftCounters,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self.memory = TreeMemory(manager, self.sessions)
        self.outbox: dict[int, FrameOut] = {}
        self.accepting = True
        self._manager = manager
        self._storage = storage
        self._model = model
        self._limits = limits
        self.max_sessions = max_sessions
        self._counters = counters
        self._tracer = tracer
        self._buffer = RowBuffer(model.device)
        self._clock = 0  # counts opens and commits

    def apply(self, frame: FrameIn) -> None:
        """Take in one frame. Closes of sessions that are open now come first: they make room for its opens."""
        if frame.end:
            for key in [key for key in self.sessions if key.stream == frame.stream]:
                self._remove(self.sessions[key])
            self.outbox.pop(frame.stream, None)
            return
        late = [c for c in (*frame.closes, *frame.rejected) if not self._close(frame.stream, c)]
        for opening in frame.opens:
            self._open(frame, opening)
        for commit in frame.commits:
            self._commit(frame.stream, commit)
        for close in late:
            self._counters.stale_messages += not self._close(frame.stream, close)

    def emit(self, session: Session) -> None:
        """Put the session's proposal into the outbox."""
        proposal = session.proposal(self._limits)
        session.sent_for = session.base_len
        self._counters.proposals += 1
        session.num_proposals += 1
        self._counters.proposed_nodes += len(proposal.tree)
        self._out(session.key.stream).proposals.append(SessionProposal(session.key.session_id, session.epoch, proposal))

    def end(self, session: Session, code: SessionErrorCode, message: str) -> None:
        """Close a session that cannot go on, and say why."""
        self._remove(session)
        self._fail(session.key, session.epoch, code, message)

    def take_outbox(self) -> dict[int, FrameOut]:
        outbox, self.outbox = self.outbox, {}
        return outbox

    def _open(self, frame: FrameIn, opening: SessionOpening) -> None:
        key = SessionKey(frame.stream, opening.session_id)
        old = self.sessions.get(key)
        if old is not None and opening.epoch <= old.epoch:
            self._counters.stale_messages += 1
            self._fail(key, opening.epoch, SessionErrorCode.STALE_EPOCH, f"the session is open at epoch {old.epoch}")
            return
        if old is not None:
            self._remove(old)
        problem = self._refusal(opening)
        if problem is not None:
            self._fail(key, opening.epoch, *problem)
            return
        vocab_size = min(self._model.vocab_size, frame.vocab_size)
        try:
            expander = Expander(
                opening,
                vocab_size=vocab_size,
                eos_token_ids=self._model.eos_token_ids,
                buffer=self._buffer,
                token_map=self._model.token_map,
            )
        except InvalidRequestError as error:
            self._fail(key, opening.epoch, SessionErrorCode.INVALID, str(error))
            return
        table = self._manager.open(opening.token_ids, opening.cache_salt)
        session = Session(key, opening, table, ScratchSlots(self._manager), expander)
        self.sessions[key] = session
        self._touch(session)
        self._counters.opened += 1
        self._counters.opened_tokens += len(opening.token_ids)
        if opening.traceparent:
            tokens = {"tokens": len(opening.token_ids), "cached_tokens": table.num_cached_tokens}
            session.span = self._tracer.start("drafter.session", opening.traceparent, epoch=opening.epoch, **tokens)
        self._counters.cached_tokens += table.num_cached_tokens

    def _refusal(self, opening: SessionOpening) -> tuple[SessionErrorCode, str] | None:
        if not self.accepting:
            return SessionErrorCode.OVER_CAPACITY, "the drafter is shutting down"
        if len(self.sessions) >= self.max_sessions:
            return SessionErrorCode.OVER_CAPACITY, f"all {self.max_sessions} sessions are in use"
        if len(opening.token_ids) > self._model.context_length:
            return (
                SessionErrorCode.CONTEXT_LENGTH,
                f"{len(opening.token_ids)} tokens, the draft model's context holds {self._model.context_length}",
            )
        if max(opening.token_ids) >= self._model.vocab_size:
            return SessionErrorCode.INVALID, self._foreign(max(opening.token_ids))
        return None

    def _commit(self, stream: int, commit: SessionCommit) -> None:
        key = SessionKey(stream, commit.session_id)
        session = self.sessions.get(key)
        if session is None:
            self._fail(key, commit.epoch, SessionErrorCode.UNKNOWN_SESSION, "no such session is open on this stream")
        elif commit.epoch != session.epoch:
            self._counters.stale_messages += 1
            self._fail(key, commit.epoch, SessionErrorCode.STALE_EPOCH, f"the session is at epoch {session.epoch}")
        elif commit.base_len != session.base_len:
            message = f"base_len is {commit.base_len}, but {session.base_len} tokens are committed"
            self.end(session, SessionErrorCode.INVALID, message)
        elif commit.token_ids and max(commit.token_ids) >= self._model.vocab_size:
            self.end(session, SessionErrorCode.INVALID, self._foreign(max(commit.token_ids)))
        else:
            self._extend(session, commit)

    def _extend(self, session: Session, commit: SessionCommit) -> None:
        self._touch(session)
        if session.root_is_fed and commit.token_ids:  # accepted K/V moves into the context: it needs its place there
            new_len = session.base_len + len(commit.token_ids)
            if not self.memory.reserve_context(session, new_len):
                session.prune_tree()
        hit = session.apply(commit, self._manager, self._storage)
        if commit.token_ids:
            self._counters.hits += hit
            self._counters.misses += not hit
        if hit and session.ready_early(self._limits):
            self._counters.early_proposals += 1
            self.emit(session)

    def _close(self, stream: int, close: SessionClose) -> bool:
        """False when no such session is open at that epoch."""
        session = self.sessions.get(SessionKey(stream, close.session_id))
        if session is None or session.epoch != close.epoch:
            return False
        self._remove(session)
        return True

    def _remove(self, session: Session) -> None:
        del self.sessions[session.key]
        session.close(self._manager)
        self._counters.closed += 1
        if session.span is not NO_SPAN:
            session.span.set(proposals=session.num_proposals, committed_tokens=session.base_len)
            session.span.end()

    def _touch(self, session: Session) -> None:
        self._clock += 1
        session.last_used = self._clock

    def _fail(self, key: SessionKey, epoch: int, code: SessionErrorCode, message: str) -> None:
        self._counters.failures += 1
        self._out(key.stream).failures.append(SessionFailure(key.session_id, epoch, code, message))

    def _out(self, stream: int) -> FrameOut:
        return self.outbox.setdefault(stream, FrameOut())

    def _foreign(self, token: int) -> str:
        return f"token {token} is not in the draft model's vocabulary (0 to {self._model.vocab_size - 1})"
