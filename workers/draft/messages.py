"""What the service and the engine say to each other, in core words."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.proposal import Proposal

__all__ = ["FrameIn", "FrameOut", "SessionClose", "SessionErrorCode", "SessionFailure", "SessionProposal", "Sink"]


class SessionErrorCode(StrEnum):
    """Why a session ended or a message had no effect; names follow the wire's."""

    UNKNOWN_SESSION = "unknown_session"
    OVER_CAPACITY = "over_capacity"
    STALE_EPOCH = "stale_epoch"
    CONTEXT_LENGTH = "context_length"
    INVALID = "invalid"


@dataclass(frozen=True)
class SessionClose:
    session_id: int
    epoch: int


@dataclass(frozen=True)
class FrameIn:
    """One frame of one stream. `end`: the stream is gone, free all its sessions."""

    stream: int
    vocab_size: int  # of the stream's target; children are below it
    opens: tuple[SessionOpening, ...] = ()
    commits: tuple[SessionCommit, ...] = ()
    closes: tuple[SessionClose, ...] = ()
    rejected: tuple[SessionClose, ...] = ()  # sessions that sent something unreadable: free them
    end: bool = False


@dataclass(frozen=True)
class SessionProposal:
    session_id: int
    epoch: int
    proposal: Proposal


@dataclass(frozen=True)
class SessionFailure:
    session_id: int
    epoch: int
    code: SessionErrorCode
    message: str


@dataclass
class FrameOut:
    """What one iteration of the engine has to say to one stream."""

    proposals: list[SessionProposal] = field(default_factory=list)
    failures: list[SessionFailure] = field(default_factory=list)


# Called from the engine's thread with the stream's number; must not block.
Sink = Callable[[int, FrameOut], None]
