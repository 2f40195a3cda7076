"""The verifier's request and its answers: wire <-> core."""

from dataclasses import fields

from outrider.v1 import common_pb2, verifier_pb2

from workers.core.errors import InvalidRequestError
from workers.core.proposal import TreeBudget
from workers.core.request import (
    MAX_TENANT_LENGTH,
    DrafterEndpoint,
    FinishReason,
    GenerationRequest,
    StepOutput,
    TenantShare,
    TokenLogprob,
)
from workers.core.sampling_params import SpeculationMode, SpeculationParams, VerificationRule
from workers.core.statistics import GenerationStats
from workers.rpc.params import (
    priority_from_wire,
    sampling_from_wire,
    sampling_to_wire,
    speculation_from_wire,
    speculation_to_wire,
)
from workers.rpc.unknown_fields import reject_unknown_fields

__all__ = [
    "endpoint_from_wire",
    "endpoint_to_wire",
    "finish_reason_from_wire",
    "finish_reason_to_wire",
    "logprob_from_wire",
    "logprob_to_wire",
    "request_from_wire",
    "request_to_wire",
    "stats_from_wire",
    "stats_to_wire",
    "step_from_wire",
    "step_to_wire",
]

MAX_REQUEST_ID_LENGTH = 128
MAX_CACHE_SALT_BYTES = 256
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0

_FINISH_REASONS = {
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: common_pb2.FINISH_REASON_CANCELLED,
    FinishReason.DEADLINE: common_pb2.FINISH_REASON_DEADLINE,
}
_FINISH_REASONS_FROM_WIRE: dict[int, FinishReason] = {wire: reason for reason, wire in _FINISH_REASONS.items()}
_STATS = tuple(f.name for f in fields(GenerationStats))
_PER_DEPTH = ("drafted_per_depth", "accepted_per_depth")


def endpoint_to_wire(endpoint: DrafterEndpoint) -> verifier_pb2.DrafterEndpoint:
    return verifier_pb2.DrafterEndpoint(
        drafter_id=endpoint.drafter_id, address=endpoint.address, incarnation=endpoint.incarnation
    )


def endpoint_from_wire(message: verifier_pb2.DrafterEndpoint) -> DrafterEndpoint:
    if not message.address:
        raise InvalidRequestError(f"drafters: {message.drafter_id or 'a drafter'} has no address (host:port)")
    return DrafterEndpoint(message.drafter_id, message.address, message.incarnation)


def finish_reason_to_wire(reason: FinishReason | None) -> common_pb2.FinishReason:
    return common_pb2.FINISH_REASON_UNSPECIFIED if reason is None else _FINISH_REASONS[reason]


def finish_reason_from_wire(value: int) -> FinishReason | None:
    """None for UNSPECIFIED (and for reasons of a newer peer)."""
    return _FINISH_REASONS_FROM_WIRE.get(value)


def logprob_to_wire(logprob: TokenLogprob) -> common_pb2.TokenLogprob:
    return common_pb2.TokenLogprob(
        token_id=logprob.token_id,
        logprob=logprob.logprob,
        top=[common_pb2.TopLogprob(token_id=token, logprob=value) for token, value in logprob.top],
    )


def logprob_from_wire(message: common_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(message.token_id, message.logprob, tuple((t.token_id, t.logprob) for t in message.top))


def stats_to_wire(stats: GenerationStats) -> common_pb2.GenerationStats:
    return common_pb2.GenerationStats(**{name: getattr(stats, name) for name in _STATS})


def stats_from_wire(message: common_pb2.GenerationStats) -> GenerationStats:
    stats = GenerationStats()
    for name in _STATS:
        value = getattr(message, name)
        setattr(stats, name, list(value) if name in _PER_DEPTH else value)
    return stats


def step_to_wire(step: StepOutput) -> verifier_pb2.VerifierGenerateResponse:
    return verifier_pb2.VerifierGenerateResponse(
        token_ids=step.token_ids,
        logprobs=[logprob_to_wire(entry) for entry in step.logprobs],
        finish_reason=finish_reason_to_wire(step.finish_reason),
        stop_string=step.stop_string,
        stats=None if step.stats is None else stats_to_wire(step.stats),
    )


def step_from_wire(request_id: str, message: verifier_pb2.VerifierGenerateResponse) -> StepOutput:
    return StepOutput(
        request_id=request_id,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(logprob_from_wire(entry) for entry in message.logprobs),
        finish_reason=finish_reason_from_wire(message.finish_reason),
        stop_string=message.stop_string,
        stats=stats_from_wire(message.stats) if message.HasField("stats") else None,
    )


def request_to_wire(request: GenerationRequest) -> verifier_pb2.VerifierGenerateRequest:
    """A budget without nodes is sent as mode OFF, which means the same."""
    off = request.budget.max_nodes == 0
    speculation = SpeculationParams(
        mode=SpeculationMode.OFF if off else request.mode,
        max_depth=None if off else request.budget.max_depth,
        max_width=None if off else request.budget.max_width,
        max_nodes=None if off else request.budget.max_nodes,
        rule=request.rule,
    )
    return verifier_pb2.VerifierGenerateRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=request.output_token_ids,
        sampling=sampling_to_wire(request.sampling),
        speculation=speculation_to_wire(speculation),
        seed=request.seed,
        cache_salt=request.cache_salt,
        deadline_ms=request.deadline_ms or 0,
        drafters=[endpoint_to_wire(endpoint) for endpoint in request.drafters],
        priority=request.priority,
        tenant=request.tenant.name,
        tenant_weight=request.tenant.weight,
    )


def request_from_wire(
    message: verifier_pb2.VerifierGenerateRequest,
    *,
    limits: TreeBudget,
    default_rule: VerificationRule = VerificationRule.COUPLED,
) -> GenerationRequest:
    """Resolve a request against the server's limits; `InvalidRequestError` names the first bad field.

    Limits of the model (vocabulary, context length) are the engine's to check.
    """
    reject_unknown_fields(message)
    if not 1 <= len(message.request_id) <= MAX_REQUEST_ID_LENGTH:
        raise InvalidRequestError(
            f"request_id: 1 to {MAX_REQUEST_ID_LENGTH} characters are allowed (got {len(message.request_id)})"
        )
    salt_bytes = len(message.cache_salt.encode())
    if salt_bytes > MAX_CACHE_SALT_BYTES:
        raise InvalidRequestError(f"cache_salt: at most {MAX_CACHE_SALT_BYTES} bytes are allowed (got {salt_bytes})")
    if not message.prompt_token_ids:
        raise InvalidRequestError("prompt_token_ids: the prompt is empty; at least one token is needed")
    return GenerationRequest.build(
        message.request_id,
        tuple(message.prompt_token_ids),
        sampling_from_wire(message.sampling),
        seed=message.seed,
        limits=limits,
        default_rule=default_rule,
        speculation=speculation_from_wire(message.speculation),
        output_token_ids=tuple(message.output_token_ids),
        cache_salt=message.cache_salt,
        deadline_ms=message.deadline_ms or None,
        drafters=tuple(endpoint_from_wire(endpoint) for endpoint in message.drafters),
        priority=priority_from_wire(message.priority),
        tenant=_tenant_from_wire(message),
    )


def _tenant_from_wire(message: verifier_pb2.VerifierGenerateRequest) -> TenantShare:
    if len(message.tenant) > MAX_TENANT_LENGTH:
        raise InvalidRequestError(
            f"tenant: at most {MAX_TENANT_LENGTH} characters are allowed (got {len(message.tenant)})"
        )
    weight = message.tenant_weight or 1.0
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidRequestError(
            f"tenant_weight: {MIN_WEIGHT:g} to {MAX_WEIGHT:g} are allowed (got {message.tenant_weight:g})"
        )
    return TenantShare(message.tenant, weight)
