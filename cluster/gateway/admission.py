"""From a client's message to a request that can run: every field is checked, everything left open is resolved."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.v1 import generation_pb2

from cluster.config.gateway import GatewayConfig
from cluster.gateway.model_info import ModelInfo
from workers.core.errors import ContextLengthError, InvalidRequestError, NotFoundError, RefusedError
from workers.core.request import TenantShare
from workers.core.sampling_params import SamplingParams, SpeculationParams
from workers.core.shown import shown
from workers.rpc import convert

__all__ = ["AdmittedRequest", "ResumePoint", "admit", "check_message", "check_model"]

MAX_REQUEST_ID_LENGTH = 128  # characters
MAX_SESSION_ID_LENGTH = 128  # characters
MAX_CACHE_SALT_BYTES = 256


@dataclass(frozen=True)
class ResumePoint:
    """What the client has of one answer already."""

    token_ids: tuple[int, ...] = ()
    text_length: int = 0  # code points
    finished: bool = False


@dataclass(frozen=True)
class AdmittedRequest:
    """A valid request: id and seed are drawn, `sampling.max_tokens` is set."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    speculation: SpeculationParams
    seed: int
    cache_salt: str
    session_id: str
    deadline_ms: int | None
    resume: Mapping[int, ResumePoint]
    priority: int = 0
    tenant: TenantShare = field(default_factory=TenantShare)

    @property
    def max_tokens(self) -> int:
        assert self.sampling.max_tokens is not None, "admission sets it"  # noqa: S101  # an invariant of this class
        return self.sampling.max_tokens

    @property
    def resumed_tokens(self) -> int:
        """Output that the client brings along and verifiers compute again, for each answer that is not complete."""
        return sum(len(point.token_ids) for point in self.resume.values() if not point.finished)


def check_message(
    message: generation_pb2.GenerateRequest | generation_pb2.CountTokensRequest, config: GatewayConfig
) -> None:
    """Size and unknown fields; `InvalidRequestError`."""
    size = message.ByteSize()
    if size > config.max_request_bytes:
        raise InvalidRequestError(f"the message has {size} bytes; at most {config.max_request_bytes} are allowed")
    convert.reject_unknown_fields(message)


def check_model(name: str, model: ModelInfo) -> None:
    """`NotFoundError` for any model but the served one."""
    if name not in ("", model.name):
        raise NotFoundError(f"model {shown(name)} is not served here; the served model is {model.name!r}")


def admit(
    message: generation_pb2.GenerateRequest,
    prompt_token_ids: Sequence[int],
    *,
    model: ModelInfo,
    config: GatewayConfig,
    rng: random.Random,
) -> AdmittedRequest:
    """Check and resolve; raises the error of the first field that is not allowed."""
    _check_labels(message)
    speculation = convert.speculation_from_wire(message.speculation)
    if speculation.rule is not None and speculation.rule not in model.allowed_rules:
        allowed = ", ".join(model.allowed_rules)
        raise RefusedError(f"verification rule {speculation.rule} is not allowed by this server; allowed: {allowed}")
    sampling = convert.sampling_from_wire(message.sampling)
    sampling.check_vocabulary(model.vocab_size)
    if sampling.n > config.max_answers:
        raise InvalidRequestError(f"n: at most {config.max_answers} answers are allowed here (got {sampling.n})")
    _check_tokens("prompt", prompt_token_ids, model.vocab_size)
    sampling = _with_max_tokens(sampling, len(prompt_token_ids), model, config)
    return AdmittedRequest(
        request_id=message.request_id or f"{rng.getrandbits(128):032x}",
        prompt_token_ids=tuple(prompt_token_ids),
        sampling=sampling,
        speculation=speculation,
        seed=rng.getrandbits(64) if sampling.seed is None else sampling.seed,
        cache_salt=message.cache_salt,
        session_id=message.session_id,
        deadline_ms=message.deadline_ms or None,
        resume=_resume_points(message, sampling, model.vocab_size),
        priority=convert.priority_from_wire(message.priority),
    )


def _check_labels(message: generation_pb2.GenerateRequest) -> None:
    for name, limit in (("request_id", MAX_REQUEST_ID_LENGTH), ("session_id", MAX_SESSION_ID_LENGTH)):
        length = len(getattr(message, name))
        if length > limit:
            raise InvalidRequestError(f"{name}: at most {limit} characters are allowed (got {length})")
    salt_bytes = len(message.cache_salt.encode())
    if salt_bytes > MAX_CACHE_SALT_BYTES:
        raise InvalidRequestError(f"cache_salt: at most {MAX_CACHE_SALT_BYTES} bytes are allowed (got {salt_bytes})")


def _check_tokens(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    bad = next((token for token in token_ids if token >= vocab_size), None)
    if bad is not None:
        raise InvalidRequestError(f"{field}: token id {bad} is outside the vocabulary (0 to {vocab_size - 1})")


def _with_max_tokens(
    sampling: SamplingParams, prompt_tokens: int, model: ModelInfo, config: GatewayConfig
) -> SamplingParams:
    """Resolve `max_tokens`, so that the answer does not depend on which verifier runs it."""
    if prompt_tokens == 0:
        raise InvalidRequestError("prompt: it is empty; at least one token is needed")
    room = model.context_length - prompt_tokens
    if room < 1:
        raise ContextLengthError(
            f"the prompt has {prompt_tokens} tokens; the context of {model.context_length} tokens has room for at most "
            f"{model.context_length - 1} and one output token"
        )
    wanted = sampling.max_tokens
    if wanted is not None and wanted > room:
        raise ContextLengthError(
            f"prompt ({prompt_tokens} tokens) + max_tokens ({wanted}) = {prompt_tokens + wanted} tokens exceed the "
            f"context of {model.context_length} tokens; shorten the prompt or ask for at most {room} tokens"
        )
    ceiling = config.max_output_tokens
    if wanted is not None and ceiling is not None and wanted > ceiling:
        raise InvalidRequestError(f"max_tokens: at most {ceiling} are allowed here (got {wanted})")
    resolved = wanted or min(room, ceiling or room)
    if sampling.min_tokens > resolved:
        raise InvalidRequestError(
            f"min_tokens: {sampling.min_tokens} exceeds the {resolved} tokens that this answer can have"
        )
    return sampling.model_copy(update={"max_tokens": resolved})


def _resume_points(
    message: generation_pb2.GenerateRequest, sampling: SamplingParams, vocab_size: int
) -> dict[int, ResumePoint]:
    points: dict[int, ResumePoint] = {}
    for point in message.resume:
        where = f"resume (answer {point.index})"
        if point.index >= sampling.n:
            raise InvalidRequestError(f"{where}: the request has answers 0 to {sampling.n - 1} only")
        if point.index in points:
            raise InvalidRequestError(f"{where}: given twice")
        if len(point.token_ids) > (sampling.max_tokens or 0):
            raise InvalidRequestError(
                f"{where}: {len(point.token_ids)} tokens are more than max_tokens ({sampling.max_tokens})"
            )
        _check_tokens(where, point.token_ids, vocab_size)
        points[point.index] = ResumePoint(tuple(point.token_ids), point.text_length, point.finished)
    if points and (sampling.seed is None or not message.request_id):
        raise InvalidRequestError(
            "resume: request_id and sampling.seed are needed, as `started` of the broken stream gave them"
        )
    return points
