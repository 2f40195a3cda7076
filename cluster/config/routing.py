"""Settings of routing: how a gateway chooses replicas of each pool."""

from typing import Any, Self

from pydantic import Field, model_validator

from workers.core.settings import Settings

__all__ = ["KvAwareConfig", "PoolRouting", "RoutingConfig"]

BUILT_IN = ("kv_aware", "least_load", "power_of_two", "round_robin", "consistent_hash")


class KvAwareConfig(Settings):
    """Weights and scales of the policy kv_aware. All costs are milliseconds; load and KV pressure always count."""

    prefill_weight: float = Field(
        2.0,
        ge=0.0,
        le=1000.0,
        description="Of computing what is not cached of the prompt: it delays this request, and those that run there",
    )
    queue_weight: float = Field(1.0, ge=0.0, le=1000.0, description="Of computing the prompts before it")
    load_weight: float = Field(1.0, gt=0.0, le=1000.0, description="Of seats that are taken, times load_ms")
    kv_pressure_weight: float = Field(
        1.0, gt=0.0, le=1000.0, description="Of K/V memory that is used, times kv_pressure_ms"
    )
    session_weight: float = Field(
        1.0, ge=0.0, le=1000.0, description="Of leaving the replica of the session, times session_ms"
    )
    lateness_weight: float = Field(1.0, ge=0.0, le=1000.0, description="Drafters only: of their time to answer")
    load_ms: float = Field(200.0, gt=0.0, le=1e6, description="Cost of a replica whose every seat is taken")
    kv_pressure_ms: float = Field(1000.0, gt=0.0, le=1e6, description="Cost of a full K/V cache")
    kv_pressure_begins_at: float = Field(0.7, ge=0.0, lt=1.0, description="Share of the K/V cache that is free of cost")
    session_ms: float = Field(50.0, ge=0.0, le=1e6, description="Cost of leaving the replica of the session")
    default_prefill_tokens_per_s: float = Field(
        2000.0,
        gt=0.0,
        le=1e9,
        description="Until the replicas of the pool have measured theirs, of which the median counts",
    )


class PoolRouting(Settings):
    """How one pool's replicas are chosen."""

    policy: str = Field(
        "kv_aware",
        description=f"{', '.join(BUILT_IN)}, or the import path of a class (package.module:Class)",
        pattern=rf"^({'|'.join(BUILT_IN)}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
    )
    kv_aware: KvAwareConfig = KvAwareConfig()
    max_imbalance: float = Field(
        1.25, gt=1.0, le=100.0, description="consistent_hash: a replica with more than this times the mean is left out"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of a class of your own")
    expected_blocks_ttl_s: float = Field(
        10.0, ge=0.0, le=3600.0, description="How long a prompt that was sent to a replica counts as cached unannounced"
    )

    @model_validator(mode="after")
    def _options_are_used(self) -> Self:
        if self.options and self.policy in BUILT_IN:
            raise ValueError(f"options are for policies of your own; policy is {self.policy}")
        return self


class RoutingConfig(Settings):
    """Both pools are routed on their own."""

    verifiers: PoolRouting = PoolRouting()
    drafters: PoolRouting = PoolRouting()
    max_sessions: int = Field(100_000, ge=0, le=10_000_000, description="session_ids that a gateway remembers")
    max_explained: int = Field(1000, ge=0, le=1_000_000, description="Requests whose routing a gateway can explain")
