"""1,000 verifiers and 2,000 drafters after a step to three times the load: do the policies find these, and stay?"""

from typing import Any

from benchmarks.simulator.cluster import Cluster
from benchmarks.simulator.convergence import judge
from benchmarks.simulator.settings import (
    DrafterModel,
    LoadSettings,
    ScalingBounds,
    SimulationSettings,
    VerifierModel,
    WorkloadSettings,
)
from cluster.autoscaling.model import ReplayModel
from cluster.autoscaling.replay import PoolBounds, Replay, replay
from cluster.autoscaling.trace import synthesize
from cluster.config.autoscaling import AutoscalingSettings, RatioBounds

__all__ = ["SCALE_AUTOSCALING", "fluid", "run_scale", "scale_settings"]

SEATS = 4
SESSIONS = 2  # of a drafter
SERVICE_S = 240.0  # long answers: few requests are many replicas
ITL_MS = 7.0  # with drafts, at the mean context of such answers
UTILIZATION = 0.75
WITHIN_S = 900.0  # the number of running requests itself takes twice SERVICE_S to come within a tenth of its end
DURATION_S = 1500.0  # the step comes after a tenth

SCALE_AUTOSCALING = AutoscalingSettings(
    interval_s=2.0,
    drafters_per_verifier=RatioBounds(min=1.0, max=3.0),
)


def scale_settings(verifiers: int, autoscaling: AutoscalingSettings, seed: int) -> SimulationSettings:
    """`verifiers` are what the load after the step needs; a third of them runs at the start."""
    rate = verifiers * SEATS * UTILIZATION / SERVICE_S
    return SimulationSettings(
        seed=seed,
        duration_s=DURATION_S,
        warmup_s=0.0,
        verifiers=round(verifiers / 3),
        drafters=round(2 * verifiers / 3),
        gateways=2,
        report_period_s=2.0,
        metrics_period_s=4.0,
        block_size=64,
        slo_ttft_ms=2000.0,
        verifier=VerifierModel(seats=SEATS, num_blocks=8192, cache_outputs=False),
        drafter=DrafterModel(max_sessions=SESSIONS),
        workload=WorkloadSettings(
            kind="system_prompts", output_tokens=round(SERVICE_S * 1e3 / ITL_MS), shared_prompts=200, turn_tokens=256
        ),
        initial_requests=round(rate / 3 * SERVICE_S),  # answers are as long as chance without memory has it: steady
        load=LoadSettings(kind="step", base=rate / 3, peak=rate),
        autoscaling=autoscaling,
        verifier_bounds=ScalingBounds(minimum=1, maximum=2 * verifiers),
        drafter_bounds=ScalingBounds(minimum=1, maximum=4 * verifiers),
    )


def run_scale(settings: SimulationSettings) -> tuple[Replay, dict[str, Any]]:
    """Request by request; rows of the replay are decisions."""
    cluster = Cluster(settings)
    cluster.run()
    return cluster.scaling.replay, {**verdicts(cluster.scaling.replay, settings.duration_s), **cluster.report()}


def fluid(settings: SimulationSettings) -> tuple[Replay, dict[str, Any]]:
    """The same policy on the model of `outrider autoscale replay`: no chance, no single replicas, no routing."""
    assert settings.autoscaling is not None  # noqa: S101
    model = ReplayModel(
        service_s=SERVICE_S,
        slowdown=0.0,
        seats=SEATS,
        max_waiting=settings.verifier.max_waiting,
        verifier_start_s=settings.verifier.start_s,
        drafter_start_s=settings.drafter.start_s,
        requests_per_drafter=SESSIONS,
        max_sessions=SESSIONS,
    )
    load = synthesize("step", base=settings.load.base, peak=settings.load.peak, duration_s=settings.duration_s)
    pools = [
        PoolBounds(bounds.minimum, bounds.maximum, first)
        for bounds, first in (
            (settings.verifier_bounds, settings.verifiers),
            (settings.drafter_bounds, settings.drafters),
        )
    ]
    result = replay(load, settings.autoscaling, model, pools[0], pools[1])
    return result, verdicts(result, settings.duration_s)


def verdicts(result: Replay, duration_s: float) -> dict[str, Any]:
    times_s = [row.time_s for row in result.rows]
    pools = {
        "verifiers": [row.verifier_target for row in result.rows],
        "drafters": [row.drafter_target for row in result.rows],
    }
    return {
        "pools": {
            name: judge(times_s, targets, duration_s / 10, within_s=WITHIN_S).to_json()
            for name, targets in pools.items()
        }
    }
