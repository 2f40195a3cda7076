"""Messages that open and extend a drafter's session: wire <-> core."""

from outrider.v1 import draft_pb2 as pb

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.errors import InvalidRequestError
from workers.core.sampling_params import VerificationRule
from workers.rpc.params import rule_from_wire, rule_to_wire, sampling_from_wire, sampling_to_wire
from workers.rpc.trees import budget_from_wire, budget_to_wire

__all__ = ["commit_from_wire", "commit_to_wire", "opening_from_wire", "opening_to_wire"]


def opening_to_wire(opening: SessionOpening) -> pb.OpenSession:
    return pb.OpenSession(
        session_id=opening.session_id,
        epoch=opening.epoch,
        token_ids=opening.token_ids,
        prompt_tokens=opening.prompt_tokens,
        sampling=sampling_to_wire(opening.sampling),
        seed=opening.seed,
        rule=rule_to_wire(opening.rule),
        cache_salt=opening.cache_salt,
        budget=budget_to_wire(opening.budget),
        traceparent=opening.traceparent,
    )


def opening_from_wire(message: pb.OpenSession, *, vocab_size: int) -> SessionOpening:
    """`InvalidRequestError` when it has no tokens, foreign tokens, or bad parameters. An unset rule means coupled."""
    tokens = tuple(message.token_ids)
    if not tokens:
        raise InvalidRequestError("token_ids: a session needs at least one committed token")
    if max(tokens) >= vocab_size:
        raise InvalidRequestError(f"token_ids: {max(tokens)} is outside the vocabulary (0 to {vocab_size - 1})")
    if message.prompt_tokens > len(tokens):
        raise InvalidRequestError(f"prompt_tokens: {message.prompt_tokens}, but there are only {len(tokens)} tokens")
    return SessionOpening(
        session_id=message.session_id,
        epoch=message.epoch,
        token_ids=tokens,
        prompt_tokens=message.prompt_tokens,
        sampling=sampling_from_wire(message.sampling),
        seed=message.seed,
        rule=rule_from_wire(message.rule) or VerificationRule.COUPLED,
        budget=budget_from_wire(message.budget),
        cache_salt=message.cache_salt,
        traceparent=message.traceparent,
    )


def commit_to_wire(commit: SessionCommit) -> pb.Commit:
    return pb.Commit(
        session_id=commit.session_id,
        epoch=commit.epoch,
        base_len=commit.base_len,
        token_ids=commit.token_ids,
        budget=budget_to_wire(commit.budget),
        paused=commit.paused,
    )


def commit_from_wire(message: pb.Commit, *, vocab_size: int) -> SessionCommit:
    """`InvalidRequestError` when it has foreign tokens."""
    tokens = tuple(message.token_ids)
    if tokens and max(tokens) >= vocab_size:
        raise InvalidRequestError(f"token_ids: {max(tokens)} is outside the vocabulary (0 to {vocab_size - 1})")
    return SessionCommit(
        session_id=message.session_id,
        epoch=message.epoch,
        base_len=message.base_len,
        token_ids=tokens,
        budget=budget_from_wire(message.budget),
        paused=message.paused,
    )
