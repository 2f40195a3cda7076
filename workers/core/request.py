"""What a verifier is asked to do, and what it answers."""

from dataclasses import dataclass
from enum import StrEnum

from workers.core.proposal import TreeBudget
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule
from workers.core.statistics import GenerationStats

__all__ = [
    "MAX_TENANT_LENGTH",
    "PRIORITY_RANGE",
    "DrafterEndpoint",
    "FinishReason",
    "GenerationRequest",
    "StepOutput",
    "TenantShare",
    "TokenLogprob",
]

PRIORITY_RANGE = (-10, 10)
"""From what is served first to what is served last, as in vLLM; 0 is the usual one."""
MAX_TENANT_LENGTH = 128


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class DrafterEndpoint:
    drafter_id: str
    address: str
    incarnation: int = 0


@dataclass(frozen=True)
class TenantShare:
    """Whose request it is, and that tenant's share against that of others."""

    name: str = ""
    weight: float = 1.0


@dataclass(frozen=True)
class GenerationRequest:
    """One request as the verifier runs it: n = 1, seed drawn, defaults resolved."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    rule: VerificationRule
    mode: SpeculationMode
    budget: TreeBudget
    output_token_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    deadline_ms: int | None = None
    drafters: tuple[DrafterEndpoint, ...] = ()
    priority: int = 0  # in PRIORITY_RANGE
    tenant: TenantShare = TenantShare()
    traceparent: str = ""  # of the trace that it belongs to; "" = none

    @staticmethod
    def build(
        request_id: str,
        prompt_token_ids: tuple[int, ...],
        sampling: SamplingParams,
        *,
        seed: int,
        limits: TreeBudget,
        default_rule: VerificationRule = VerificationRule.COUPLED,
        speculation: SpeculationParams | None = None,
        output_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
        deadline_ms: int | None = None,
        drafters: tuple[DrafterEndpoint, ...] = (),
        priority: int = 0,
        tenant: TenantShare = TenantShare(),
    ) -> "GenerationRequest":
        """Resolve what the request leaves open against the server's `limits` and `default_rule`."""
        wish = speculation or SpeculationParams()
        budget = TreeBudget(
            wish.max_depth or limits.max_depth, wish.max_width or limits.max_width, wish.max_nodes or limits.max_nodes
        ).within(limits)
        return GenerationRequest(
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            sampling=sampling,
            seed=seed,
            rule=wish.rule or default_rule,
            mode=wish.mode,
            budget=budget,
            output_token_ids=output_token_ids,
            cache_salt=cache_salt,
            deadline_ms=deadline_ms,
            drafters=drafters,
            priority=priority,
            tenant=tenant,
        )


@dataclass(frozen=True)
class TokenLogprob:
    """Log probability (natural, of the unprocessed target distribution) and the best alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StepOutput:
    """What one step did for one request. `finish_reason` is set in the last one only."""

    request_id: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_string: str = ""
    stats: GenerationStats | None = None
