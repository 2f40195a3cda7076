"""What is simulated. Every assumption about replicas stands here, with its unit."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cluster.autoscaling.trace import Kind
from cluster.config.autoscaling import AutoscalingSettings
from cluster.config.routing import RoutingConfig
from workers.core.settings import Settings

__all__ = [
    "Curve",
    "DrafterModel",
    "LoadSettings",
    "ScalingBounds",
    "SimulationSettings",
    "VerifierModel",
    "WorkloadKind",
    "WorkloadSettings",
]

Curve = Literal["cpu_measured", "gpu_assumed"]
WorkloadKind = Literal["chat", "system_prompts", "agents", "random"]


class VerifierModel(Settings):
    """One verifier."""

    curve: Curve = Field("gpu_assumed", description="Step costs, see `benchmarks.simulator.costs`")
    seats: int = Field(32, ge=1, le=1024, description="max_running_requests")
    max_waiting: int = Field(64, ge=0, le=10_000, description="Requests that wait; more are refused")
    max_tokens_per_step: int = Field(2048, ge=16, le=65_536, description="Of trees, roots and pieces of prompts")
    num_blocks: int = Field(8192, ge=16, le=10_000_000, description="K/V blocks")
    cache_outputs: bool = Field(True, description="Blocks of answers stay in the prefix cache, as they do in reality")
    admit_early: bool = Field(
        False,
        description="Whoever finds a seat looks for its prefix at once. False, as the engine does it: not before the "
        "prompts that are being computed leave room in a step",
    )
    start_s: float = Field(60.0, ge=0.0, le=3600.0, description="From the decision to the first request")


class DrafterModel(Settings):
    """One drafter. Times are of batches: what one session costs more, all sessions wait for."""

    max_sessions: int = Field(64, ge=1, le=4096, description="More are refused; the answer goes on without drafts")
    base_ms: float = Field(4.0, gt=0.0, le=10_000.0, description="From a commit to its proposal with no other session")
    session_ms: float = Field(0.15, ge=0.0, le=1000.0, description="How much longer with each other session")
    prefill_tokens_per_s: float = Field(50_000.0, gt=0.0, le=1e9, description="Prompts that it has not cached")
    num_blocks: int = Field(32_768, ge=16, le=10_000_000, description="K/V blocks")
    start_s: float = Field(20.0, ge=0.0, le=3600.0, description="From the decision to the first request")


class WorkloadSettings(Settings):
    """Prompts and answers, in tokens; whole blocks are used."""

    kind: WorkloadKind = "chat"
    output_tokens: int = Field(200, ge=1, le=100_000, description="Mean, geometric")
    turn_tokens: int = Field(160, ge=1, le=100_000, description="Mean of what a user adds")
    turns: float = Field(5.0, ge=1.0, le=1000.0, description="Mean of a chat, geometric")
    think_s: float = Field(5.0, ge=0.0, le=86_400.0, description="Mean between an answer and the next turn")
    shared_prompts: int = Field(64, ge=1, le=1_000_000, description="Different system prompts")
    shared_tokens: int = Field(2048, ge=0, le=1_000_000, description="Of a system prompt, or of agents' common prompt")
    zipf: float = Field(1.1, ge=0.0, le=5.0, description="Exponent of the system prompts' popularity")
    burst: int = Field(8, ge=1, le=1000, description="Agents that start together")
    random_tokens: int = Field(1024, ge=1, le=1_000_000, description="Mean of prompts that share nothing")


class LoadSettings(Settings):
    """Requests per second over time."""

    kind: Kind | Literal["poisson"] = Field("poisson", description="poisson: `base` all the time")
    base: float = Field(20.0, gt=0.0, le=100_000.0, description="Requests per second")
    peak: float = Field(60.0, gt=0.0, le=100_000.0, description="Requests per second; not for poisson")


class ScalingBounds(Settings):
    """Of one pool."""

    minimum: int = Field(1, ge=1, le=10_000)
    maximum: int = Field(10_000, ge=1, le=10_000)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum ({self.minimum}) must not exceed maximum ({self.maximum})")
        return self


class SimulationSettings(Settings):
    """One run."""

    seed: int = Field(0, ge=0, le=2**63)
    duration_s: float = Field(120.0, gt=0.0, le=604_800.0)
    warmup_s: float = Field(20.0, ge=0.0, le=604_800.0, description="Requests that arrive before are not counted")
    initial_requests: int = Field(
        0, ge=0, le=1_000_000, description="That come at the very start, so that pools are full"
    )
    verifiers: int = Field(16, ge=1, le=10_000, description="At the start")
    drafters: int = Field(8, ge=0, le=10_000, description="At the start; 0 = there is no such pool")
    gateways: int = Field(2, ge=1, le=100, description="Each sees the replicas on its own, and late")
    report_period_s: float = Field(0.5, gt=0.0, le=60.0, description="Between two messages of a replica")
    report_delay_s: float = Field(0.005, ge=0.0, le=60.0, description="Until gateways have them")
    block_size: int = Field(16, ge=1, le=1024, description="Tokens of a K/V block")
    kills_per_hour: float = Field(0.0, ge=0.0, le=3600.0, description="Of each replica, at random")
    slo_ttft_ms: float = Field(1000.0, gt=0.0, le=3.6e6, description="First token after")
    slo_itl_ms: float = Field(30.0, gt=0.0, le=3.6e6, description="Mean between the tokens of an answer")
    verifier: VerifierModel = VerifierModel()
    drafter: DrafterModel = DrafterModel()
    workload: WorkloadSettings = WorkloadSettings()
    load: LoadSettings = LoadSettings()
    routing: RoutingConfig = RoutingConfig()
    autoscaling: AutoscalingSettings | None = Field(None, description="None = pools keep their size")
    verifier_bounds: ScalingBounds = ScalingBounds()
    drafter_bounds: ScalingBounds = ScalingBounds()
    metrics_period_s: float = Field(2.0, gt=0.0, le=600.0, description="Between two reports to the autoscaler")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.warmup_s >= self.duration_s:
            raise ValueError(f"warmup_s ({self.warmup_s:g}) must be less than duration_s ({self.duration_s:g})")
        return self
