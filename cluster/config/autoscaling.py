"""Settings of autoscaling: the bounds of each pool, and what the decision of `cluster.autoscaling` aims at.

The defaults favour serving over saving: up within seconds, down after minutes.
"""

from typing import Any, Self

from pydantic import Field, model_validator

from workers.core.settings import Settings

__all__ = [
    "AutoscalingSettings",
    "DownLimits",
    "DrafterScaling",
    "OwnPolicy",
    "PoolAutoscaling",
    "PoolScaling",
    "RatioBounds",
    "StepLimits",
    "UpLimits",
    "VerifierScaling",
]


class OwnPolicy(Settings):
    """A policy of the user's, as Serve takes it: a function of, or a class called with, an `AutoscalingContext`."""

    policy_function: str = Field(
        description="Import path module:name; the module must be importable wherever Serve runs",
        pattern=r"^[A-Za-z_][\w.]*[.:][A-Za-z_]\w*$",
    )
    policy_kwargs: dict[str, Any] = Field(default_factory=dict, description="For the constructor of a class; JSON only")


class PoolAutoscaling(Settings):
    """`autoscaling` of one pool. With it the pool has no `num_replicas`."""

    min_replicas: int = Field(1, ge=1, le=10_000, description="The floor; never 0, for Serve cannot see our requests")
    max_replicas: int = Field(ge=1, le=10_000, description="The ceiling")
    initial_replicas: int | None = Field(None, ge=1, le=10_000, description="At the first start; None = min_replicas")
    metrics_interval_s: float = Field(
        2.0, ge=0.1, le=600.0, description="Seconds between two reports of a replica to Serve's controller"
    )
    target_ongoing_requests: float | None = Field(
        None,
        gt=0.0,
        le=1e6,
        allow_inf_nan=False,
        description="Requests per replica that Serve's own policy aims at; gateways and own policies only; None = half "
        "of the gateway's max_concurrent_requests",
    )
    upscale_delay_s: float | None = Field(
        None, ge=0.0, le=86_400.0, description="Serve's own delay; gateways and own policies only; None = 30"
    )
    downscale_delay_s: float | None = Field(
        None, ge=0.0, le=86_400.0, description="Serve's own delay; gateways and own policies only; None = 600"
    )
    policy: OwnPolicy | None = Field(
        None, description="None = Serve's own for gateways, the one described in docs/autoscaling.md for the others"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) must not exceed max_replicas ({self.max_replicas})")
        first = self.initial_replicas
        if first is not None and not self.min_replicas <= first <= self.max_replicas:
            raise ValueError(
                f"initial_replicas ({first}) must lie between min_replicas ({self.min_replicas}) and max_replicas "
                f"({self.max_replicas})"
            )
        return self


WINDOW = "Seconds for which the wish must have lasted, without a break"
PERIOD = "Least seconds between two steps in this direction"
REPLICAS = "Largest step in replicas; the larger of both limits counts"
PERCENT = "Largest step in percent of the replicas that are wanted now"


class StepLimits(Settings):
    """One direction of change."""

    window_s: float = Field(ge=0.0, le=86_400.0, description=WINDOW)
    period_s: float = Field(ge=0.0, le=86_400.0, description=PERIOD)
    max_replicas: int = Field(ge=1, le=10_000, description=REPLICAS)
    max_percent: float = Field(ge=0.0, le=1000.0, description=PERCENT)


class UpLimits(StepLimits):
    """How a pool grows."""

    window_s: float = Field(15.0, ge=0.0, le=86_400.0, description=WINDOW)
    period_s: float = Field(15.0, ge=0.0, le=86_400.0, description=PERIOD)
    max_replicas: int = Field(4, ge=1, le=10_000, description=REPLICAS)
    max_percent: float = Field(100.0, ge=0.0, le=1000.0, description=PERCENT)


class DownLimits(StepLimits):
    """How a pool shrinks."""

    window_s: float = Field(300.0, ge=0.0, le=86_400.0, description=WINDOW)
    max_window_s: float = Field(
        3600.0,
        ge=0.0,
        le=86_400.0,
        description="A step up that takes steps down back within this time puts off the next one at such a load: by "
        "two windows, then four, and so on up to this; never less than window_s",
    )
    period_s: float = Field(60.0, ge=0.0, le=86_400.0, description=PERIOD)
    max_replicas: int = Field(1, ge=1, le=10_000, description=REPLICAS)
    max_percent: float = Field(25.0, ge=0.0, le=100.0, description=PERCENT)


class PoolScaling(Settings):
    """What both pools have in common."""

    tolerance: float = Field(
        0.1,
        ge=0.0,
        le=0.9,
        description="Hysteresis, as a share: a pool grows when so much more is asked for, and shrinks to a number of "
        "which so much less is asked for",
    )
    settle_s: float = Field(
        60.0,
        ge=0.0,
        le=3600.0,
        description="After replicas came or went, signals that only compare (queue, latencies, lateness, delivery) "
        "must not ask for more for this long; at least the window over which replicas report",
    )
    up: UpLimits = UpLimits()
    down: DownLimits = DownLimits()


class VerifierScaling(PoolScaling):
    """Verifiers: requests, queue, K/V memory and latencies. The largest wish counts."""

    target_utilization: float = Field(
        0.75, gt=0.0, le=1.0, description="Running requests as a share of max_running_requests"
    )
    target_kv_usage: float = Field(0.8, gt=0.0, le=1.0, description="K/V blocks in use as a share of all")
    target_waiting_requests: float = Field(
        2.0, ge=0.0, le=100_000.0, description="Waiting requests per replica; above it the pool counts as saturated"
    )
    target_ttft_ms: float | None = Field(
        None, gt=0.0, le=3.6e6, description="Time to first token, p95 at the verifier; None = not looked at"
    )
    target_itl_ms: float | None = Field(
        None, gt=0.0, le=3.6e6, description="Time between tokens, p95 at the verifier; None = not looked at"
    )
    min_latency_utilization: float = Field(
        0.25,
        gt=0.0,
        le=1.0,
        description="Latencies ask for no more replicas than would bring utilisation down to this: beyond it the model "
        "is as fast as it gets",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_latency_utilization > self.target_utilization:
            raise ValueError(
                f"min_latency_utilization ({self.min_latency_utilization:g}) must not exceed target_utilization "
                f"({self.target_utilization:g}): latencies could then never ask for a replica"
            )
        return self


class DrafterScaling(PoolScaling):
    """Drafters: sessions, what is delivered of what verifiers demand, and whether it is accepted."""

    target_session_usage: float = Field(0.75, gt=0.0, le=1.0, description="Sessions as a share of max_sessions")
    min_delivery: float = Field(
        0.5, ge=0.0, le=1.0, description="Delivered / demanded nodes at the verifiers; below it drafters are too slow"
    )
    max_late: float = Field(
        0.3, gt=0.0, le=1.0, description="Share of the proposals that come too late; above it drafters are too slow"
    )
    min_busy: float = Field(
        0.3,
        gt=0.0,
        le=1.0,
        description="Delivery and lateness ask for no more replicas than would bring the share of the time in which "
        "drafters compute down to this: beyond it the delay lies elsewhere",
    )
    relearn_s: float = Field(
        3600.0,
        ge=60.0,
        le=604_800.0,
        description="At how many sessions drafters were too slow is known for so long; then a quarter more is tried",
    )
    min_accepted_per_tree: float = Field(
        0.25,
        ge=0.0,
        le=64.0,
        description="Accepted draft tokens per verified tree; below it drafting does not pay and the pool shrinks to "
        "its floor; 0 = never",
    )


class RatioBounds(Settings):
    """Drafters per verifier. The ratio follows from load; these only bound it. Pool bounds come first."""

    min: float = Field(0.0, ge=0.0, le=1000.0, description="At least so many drafters for each verifier")
    max: float | None = Field(None, gt=0.0, le=1000.0, description="At most so many; None = no bound")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min:g}) must not exceed max ({self.max:g})")
        return self


class AutoscalingSettings(Settings):
    """`autoscaling` of the application: everything but the bounds of the pools."""

    dry_run: bool = Field(False, description="Log what would be done, and do nothing")
    interval_s: float = Field(1.0, ge=0.1, le=600.0, description="Seconds between two decisions")
    stale_after_s: float = Field(
        30.0, gt=0.0, le=3600.0, description="Signals older than this count as missing; no pool shrinks on missing ones"
    )
    max_missing_share: float = Field(
        0.1,
        ge=0.0,
        le=0.5,
        description="Up to this share of missing replicas a pool may still shrink, each of them counted as fully used; "
        "a pool of less than 1 / share replicas never does",
    )
    verifiers: VerifierScaling = VerifierScaling()
    drafters: DrafterScaling = DrafterScaling()
    drafters_per_verifier: RatioBounds = RatioBounds()
