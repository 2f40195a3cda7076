"""Settings of the engines. One frozen model per component; unknown keys are refused."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from workers.core.proposal import TreeBudget
from workers.core.sampling_params import VerificationRule
from workers.core.settings import Settings

__all__ = [
    "MAX_TOKENS",
    "DrafterConfig",
    "KvCacheConfig",
    "Layer",
    "LayerSkipConfig",
    "MedusaConfig",
    "ModelConfig",
    "NgramConfig",
    "RpcConfig",
    "SpeculationConfig",
    "TlsConfig",
    "TracingConfig",
    "VerifierConfig",
]

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Layer = Annotated[int, Field(ge=0, le=10_000)]
MAX_TOKENS = 2**31 - 1
"""More than any context, answer or cache has; token counts travel as 32 bits."""


class ModelConfig(Settings):
    """Which model runs, and how."""

    model: str = Field(description="Hub id, local folder, GGUF file or draft checkpoint", min_length=1)
    dtype: Dtype = Field("auto", description="auto = the fastest exact choice for the device")
    device: str = Field("cpu", description="cpu, cuda or cuda:N", pattern=r"^(cpu|cuda(:\d{1,3})?)$")
    base: str | None = Field(
        None,
        description="For a draft checkpoint: the target that its layers belong to; None = as it was trained",
        min_length=1,
    )
    layers: tuple[Layer, ...] | None = Field(
        None,
        description="Keep only these decoder layers (0-based, ascending): a draft made from a target",
        min_length=1,
    )
    max_context_length: int | None = Field(None, ge=16, le=MAX_TOKENS, description="None = the model's own")
    num_threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of each process; None = all cores, shared"
    )
    tensor_parallel_size: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that share the model, each with a part of every layer and of the K/V pool; must divide "
        "heads, KV heads and intermediate size",
    )
    rank_timeout_s: float = Field(
        20.0,
        ge=1.0,
        le=3600.0,
        description="With tensor_parallel_size above 1: a process of the group that is silent for this long is given "
        "up, and the replica with it",
    )

    @property
    def tokenizer_model(self) -> str:
        """Where its tokenizer is."""
        return self.base or self.model


class KvCacheConfig(Settings):
    """The paged K/V pool. Its memory is allocated once, at start."""

    block_size: int = Field(16, ge=1, le=256, description="Tokens per block")
    num_blocks: int = Field(2048, ge=2, le=MAX_TOKENS, description="Blocks in the pool")
    prefix_caching: bool = Field(True, description="Requests share the blocks of equal beginnings")

    @property
    def num_tokens(self) -> int:
        """Tokens that the whole pool holds."""
        return self.num_blocks * self.block_size


class SpeculationConfig(Settings):
    """Limits and defaults of speculation on a verifier."""

    max_depth: int = Field(5, ge=1, le=64, description="Most draft tokens one behind another in a tree")
    max_width: int = Field(4, ge=1, le=64, description="Most children of a node")
    max_nodes: int = Field(16, ge=1, le=1024, description="Most draft tokens of a tree")
    default_rule: VerificationRule = Field(
        VerificationRule.COUPLED, description="By which draft tokens are accepted where a request does not say"
    )
    allow_typical: bool = Field(False, description="Allow the rule that is not exact")
    max_grace_ms: float = Field(
        200.0, ge=0.0, le=10_000.0, description="Longest time that a step waits for proposals of drafters"
    )
    profile_ms: float = Field(
        2000.0, ge=0.0, le=60_000.0, description="Time given to measuring step costs at start; 0 = skip"
    )
    patience_steps: int = Field(
        6, ge=1, le=10_000, description="Evaluations in a row that must agree before a request is paused or resumed"
    )
    resume_margin: float = Field(
        0.03, ge=0.0, le=1.0, description="How much more goodput a paused request must promise than an active one"
    )
    probe_every_steps: int = Field(
        96, ge=0, le=1_000_000, description="Steps until a paused request is tried again; doubles in vain; 0 = never"
    )
    control_every_steps: int = Field(
        1024, ge=0, le=1_000_000, description="Active steps between two short pauses that show the cost of drafting"
    )
    trace_path: str | None = Field(
        None, min_length=1, description="JSON-lines file of all budget decisions; {pid} is replaced; None = no trace"
    )

    @property
    def limits(self) -> TreeBudget:
        return TreeBudget(self.max_depth, self.max_width, self.max_nodes)

    @property
    def allowed_rules(self) -> tuple[VerificationRule, ...]:
        return tuple(rule for rule in VerificationRule if rule.exact or self.allow_typical)

    @model_validator(mode="after")
    def _default_allowed(self) -> Self:
        if self.default_rule not in self.allowed_rules:
            raise ValueError("default_rule: typical needs allow_typical: true")
        return self


class NgramConfig(Settings):
    """Prompt lookup; names follow vLLM's speculative_config."""

    prompt_lookup_min: int = Field(2, ge=1, le=32, description="Shortest ending of the text that is looked up in it")
    prompt_lookup_max: int = Field(4, ge=1, le=32, description="Longest; longer ones come first")
    combine: bool = Field(False, description="Unite its trees with those of the method, which is another one")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min ({self.prompt_lookup_min}) must not exceed "
                f"prompt_lookup_max ({self.prompt_lookup_max})"
            )
        return self


class LayerSkipConfig(Settings):
    """Drafting with the first layers of a target that was trained for it (`outrider train layerskip`)."""

    exit_layer: int = Field(
        ge=1, le=10_000, description="E: layers 1 to E and the LM head draft; below the target's layers"
    )
    min_survival: float = Field(
        0.1,
        gt=0.0,
        lt=1.0,
        description="Nodes that are less likely to be accepted are not expanded: each level costs a pass of E layers",
    )


class MedusaConfig(Settings):
    """Heads on the target's last hidden state."""

    model: str = Field(description="Folder of the heads", min_length=1)


class TlsConfig(Settings):
    """TLS between replicas, on both sides of each connection: every replica serves and calls with the same files."""

    certificate: str = Field(description="PEM file with the certificate chain of this replica", min_length=1)
    key: str = Field(description="PEM file with its private key", min_length=1)
    ca: str = Field(
        description="PEM file with the authority that signed the certificates of all replicas", min_length=1
    )
    server_name: str | None = Field(
        None, description="Name in all certificates; None = they name the address of each replica", min_length=1
    )
    mutual: bool = Field(True, description="Servers ask callers for a certificate of that authority too (mTLS)")


class TracingConfig(Settings):
    """Traces of requests, sent to an OpenTelemetry collector. Needs the extra `tracing`."""

    endpoint: str = Field(
        description="host:port of a collector that takes OTLP over gRPC", pattern=r"^[^\s/:]+:\d{1,5}$", max_length=256
    )
    tls: bool = Field(False, description="Speak TLS with the collector, with the system's authorities")
    sample_ratio: float = Field(0.01, ge=0.0, le=1.0, description="Share of requests that are traced")
    follow_clients: bool = Field(
        False,
        description="A `traceparent` from a client continues its trace, and decides whether it is recorded; only for "
        "clients that may decide that",
    )

    @field_validator("endpoint")
    @classmethod
    def _has_a_port(cls, value: str) -> str:
        if not 1 <= int(value.rpartition(":")[2]) <= 65535:
            raise ValueError("the port of host:port lies between 1 and 65535")
        return value


class RpcConfig(Settings):
    """The internal plane: how replicas call each other. The same for all replicas of an application."""

    token_file: str | None = Field(
        None, description="File with the shared token; None = the environment's OUTRIDER_INTERNAL_TOKEN", min_length=1
    )
    tls: TlsConfig | None = Field(None, description="None = plaintext")
    max_message_bytes: int = Field(
        64 * 2**20, ge=64 * 2**10, le=2**30, description="Largest message in either direction"
    )
    reflection: bool = Field(False, description="Let servers describe their services to anyone with the token")
    tracing: TracingConfig | None = Field(None, description="Traces of requests over all hops; None = none")


class VerifierConfig(Settings):
    """One verifier replica."""

    model: ModelConfig
    kv_cache: KvCacheConfig = KvCacheConfig()
    speculation: SpeculationConfig = SpeculationConfig()
    method: Literal["draft_model", "layerskip", "medusa", "ngram", "none"] = Field(
        "draft_model", description="Which proposer serves requests"
    )
    ngram: NgramConfig = NgramConfig()
    medusa: MedusaConfig | None = Field(None, description="Needed by method: medusa")
    layerskip: LayerSkipConfig | None = Field(None, description="Needed by method: layerskip")
    max_running_requests: int = Field(32, ge=1, le=4096, description="Seats: requests that one step serves")
    max_waiting_requests: int = Field(256, ge=0, le=100_000, description="Beyond it: RESOURCE_EXHAUSTED")
    max_tokens_per_step: int = Field(512, ge=16, le=1_000_000, description="Budget of one step: prefill + trees")
    give_up_hopeless: bool = Field(
        True, description="While others wait, refuse or end requests that can no longer end within their deadline"
    )
    rpc: RpcConfig = Field(RpcConfig(), description="In an application: given once, as `internal`")
    stuck_after_s: float = Field(
        120.0, gt=0.0, le=86_400.0, description="A step that takes longer means that the engine hangs; it is replaced"
    )

    @model_validator(mode="after")
    def _method_has_settings(self) -> Self:
        if self.ngram.combine and self.method in ("ngram", "none"):
            raise ValueError(f"ngram.combine needs a method to combine with; method is {self.method}")
        if self.method == "medusa" and self.medusa is None:
            raise ValueError("method: medusa needs medusa.model, the folder of the heads")
        if self.method == "layerskip" and self.layerskip is None:
            raise ValueError("method: layerskip needs layerskip.exit_layer, the last layer that drafts")
        return self


class DrafterConfig(Settings):
    """One drafter replica."""

    model: ModelConfig
    kv_cache: KvCacheConfig = KvCacheConfig()
    max_sessions: int = Field(64, ge=1, le=4096, description="Seats: requests that trees are grown for")
    max_tokens_per_step: int = Field(512, ge=16, le=1_000_000, description="Budget of one forward pass")
    rpc: RpcConfig = Field(RpcConfig(), description="In an application: given once, as `internal`")
    grow_ahead: int = Field(
        1, ge=0, le=16, description="Levels that a tree may grow beyond the budget's depth while the verifier works"
    )
