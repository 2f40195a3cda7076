"""Frames of the draft stream: wire <-> what the engine takes and gives."""

from outrider.v1 import draft_pb2 as pb

from workers.core.errors import OutriderError
from workers.draft.messages import FrameIn, FrameOut, SessionClose, SessionErrorCode, SessionFailure
from workers.rpc.convert import commit_from_wire, opening_from_wire, proposal_to_wire

__all__ = ["frame_from_wire", "frame_to_wire"]

_CODES = {
    SessionErrorCode.UNKNOWN_SESSION: pb.SESSION_ERROR_CODE_UNKNOWN_SESSION,
    SessionErrorCode.OVER_CAPACITY: pb.SESSION_ERROR_CODE_OVER_CAPACITY,
    SessionErrorCode.STALE_EPOCH: pb.SESSION_ERROR_CODE_STALE_EPOCH,
    SessionErrorCode.CONTEXT_LENGTH: pb.SESSION_ERROR_CODE_CONTEXT_LENGTH,
    SessionErrorCode.INVALID: pb.SESSION_ERROR_CODE_INVALID,
}


def frame_from_wire(
    frame: pb.VerifierFrame, *, stream: int, target_vocab_size: int
) -> tuple[FrameIn, list[SessionFailure]]:
    """What the engine gets, and an error for each message that cannot be read (its session is freed)."""
    opens, commits, failures = [], [], []
    for message in frame.opens:
        try:
            opens.append(opening_from_wire(message, vocab_size=target_vocab_size))
        except OutriderError as error:
            failures.append(_invalid(message.session_id, message.epoch, error))
    for commit in frame.commits:
        try:
            commits.append(commit_from_wire(commit, vocab_size=target_vocab_size))
        except OutriderError as error:
            failures.append(_invalid(commit.session_id, commit.epoch, error))
    readable = FrameIn(
        stream=stream,
        vocab_size=target_vocab_size,
        opens=tuple(opens),
        commits=tuple(commits),
        closes=tuple(SessionClose(close.session_id, close.epoch) for close in frame.closes),
        rejected=tuple(SessionClose(failure.session_id, failure.epoch) for failure in failures),
    )
    return readable, failures


def frame_to_wire(frame: FrameOut) -> pb.DrafterFrame:
    return pb.DrafterFrame(
        proposals=[proposal_to_wire(sent.session_id, sent.epoch, sent.proposal) for sent in frame.proposals],
        errors=[
            pb.SessionError(
                session_id=failure.session_id, epoch=failure.epoch, code=_CODES[failure.code], message=failure.message
            )
            for failure in frame.failures
        ],
    )


def _invalid(session_id: int, epoch: int, error: OutriderError) -> SessionFailure:
    return SessionFailure(session_id, epoch, SessionErrorCode.INVALID, str(error))
