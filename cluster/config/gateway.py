"""Settings of the gateway."""

from pydantic import Field

from cluster.config.pools import Pool
from cluster.config.routing import RoutingConfig
from cluster.config.tenancy import TenancyConfig
from workers.core.config import MAX_TOKENS

__all__ = ["GatewayConfig"]


class GatewayConfig(Pool):
    """Gateway replicas, and what they accept from clients."""

    max_concurrent_requests: int = Field(
        1024, ge=1, le=100_000, description="Per replica, streams included; beyond it: RESOURCE_EXHAUSTED"
    )
    max_request_bytes: int = Field(4 * 2**20, ge=1024, le=64 * 2**20, description="Largest request message")
    max_output_tokens: int | None = Field(
        None,
        ge=1,
        le=MAX_TOKENS,
        description="Upper bound of max_tokens, and its default; None = what the context has room for",
    )
    max_answers: int = Field(16, ge=1, le=16, description="Upper bound of a request's n")
    max_attempts: int = Field(
        4, ge=1, le=100, description="Verifiers tried for one answer, the first included, before it fails"
    )
    replica_wait_ms: int = Field(
        15_000, ge=0, le=600_000, description="How long an answer waits while no verifier is available"
    )
    routing: RoutingConfig = RoutingConfig()
    stall_probe_ms: int = Field(
        1000,
        ge=0,
        le=600_000,
        description="After so much silence of a stream its verifier must answer; 0 = never asked",
    )
    stall_timeout_ms: int = Field(
        5000, ge=100, le=600_000, description="Time for that answer; without one the request goes on elsewhere"
    )
    heartbeat_ms: int = Field(
        5000, ge=0, le=600_000, description="Clients get a sign of life when a stream is silent for this long; 0 = none"
    )
    drafters_per_request: int = Field(2, ge=1, le=16, description="Drafters named to the verifier, best first")
    tenancy: TenancyConfig = TenancyConfig()
