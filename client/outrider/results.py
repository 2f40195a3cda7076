"""What a caller gets back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.params import VerificationRule
from outrider.statistics import GenerationStats

__all__ = [
    "Delta",
    "FinishReason",
    "Generation",
    "ModelInfo",
    "Output",
    "ReplicaInfo",
    "RoutingCandidate",
    "RoutingDecision",
    "ServerInfo",
    "TokenCount",
    "TokenLogprob",
    "TopLogprob",
]


class FinishReason(StrEnum):
    STOP = "stop"
    """End-of-sequence token, a stop token or a stop string."""
    LENGTH = "length"
    """max_tokens or the context limit."""
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class TopLogprob:
    token_id: int
    logprob: float


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log probability under the model's own distribution, and the best alternatives."""

    token_id: int
    logprob: float
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True)
class Delta:
    """What one message of a stream adds to one answer. Text may lag behind tokens."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Output:
    """One answer."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    """None in a partial result: the answer had not ended."""
    stop_string: str
    """The stop string that ended it, when one did."""
    stats: GenerationStats


@dataclass(frozen=True)
class Generation:
    """All answers to one request. `text`, `token_ids` and `finish_reason` are those of the first."""

    request_id: str
    model: str
    seed: int
    outputs: tuple[Output, ...]
    attempts: int
    """RPCs that it took; above 1 when a stream was resumed or retried."""

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.outputs[0].finish_reason

    @property
    def stats(self) -> GenerationStats:
        """Of all answers together."""
        return GenerationStats.combined([output.stats for output in self.outputs])


@dataclass(frozen=True)
class TokenCount:
    """A prompt as the model sees it."""

    prompt_tokens: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class ModelInfo:
    """The model that is served and its limits."""

    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    context_length: int
    dtype: str
    default_rule: VerificationRule
    allowed_rules: tuple[VerificationRule, ...]
    max_depth: int
    max_width: int
    max_nodes: int


@dataclass(frozen=True)
class ReplicaInfo:
    """One replica of a pool; `role` is "verifier" or "drafter"."""

    role: str
    replica_id: str
    address: str
    incarnation: int
    model: str
    running_requests: int
    waiting_requests: int
    total_kv_blocks: int
    free_kv_blocks: int


@dataclass(frozen=True)
class ServerInfo:
    version: str
    replicas: tuple[ReplicaInfo, ...]


@dataclass(frozen=True)
class RoutingCandidate:
    """A replica that a gateway considered."""

    replica_id: str
    cached_tokens: int
    """Prompt tokens whose K/V it was believed to hold."""
    cost: float
    """The least is chosen; milliseconds under the policy kv_aware."""
    terms: Mapping[str, float] = field(hash=False)
    """What the cost consists of."""


@dataclass(frozen=True)
class RoutingDecision:
    """One choice of replicas for one answer."""

    index: int
    """Which answer of the request."""
    pool: str
    """"verifier" or "drafter"."""
    policy: str
    prompt_tokens: int
    num_replicas: int
    num_chosen: int
    decision_ms: float
    candidates: tuple[RoutingCandidate, ...]
    """Best first, at most 8; the first `num_chosen` were chosen."""
