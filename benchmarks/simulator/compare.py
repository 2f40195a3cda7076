"""The same load under each policy, and the load at which each of them breaks."""

from typing import Any

from benchmarks.simulator.cluster import Cluster
from benchmarks.simulator.settings import LoadSettings, SimulationSettings, WorkloadKind, WorkloadSettings
from cluster.config.routing import PoolRouting, RoutingConfig

__all__ = ["POLICIES", "breakpoint_of", "compare", "with_load", "with_policy", "with_workload"]

POLICIES = ("kv_aware", "least_load", "power_of_two", "round_robin", "consistent_hash")
BROKEN_BELOW = 0.95  # share of the requests that must be within the SLO


def with_policy(settings: SimulationSettings, policy: str) -> SimulationSettings:
    """For both pools."""
    pool = PoolRouting(policy=policy)
    return settings.model_copy(update={"routing": RoutingConfig(verifiers=pool, drafters=pool)})


def with_workload(settings: SimulationSettings, kind: WorkloadKind) -> SimulationSettings:
    workload: WorkloadSettings = settings.workload.model_copy(update={"kind": kind})
    return settings.model_copy(update={"workload": workload})


def with_load(settings: SimulationSettings, requests_per_s: float) -> SimulationSettings:
    return settings.model_copy(update={"load": LoadSettings(base=requests_per_s)})


def compare(settings: SimulationSettings, policies: tuple[str, ...] = POLICIES) -> dict[str, dict[str, Any]]:
    """Policy -> report."""
    return {policy: _run(with_policy(settings, policy)) for policy in policies}


def breakpoint_of(
    settings: SimulationSettings, policy: str, *, low: float, high: float, rounds: int
) -> tuple[float, list[dict[str, Any]]]:
    """The highest load of a bisection between `low` and `high` requests per second at which `BROKEN_BELOW` holds.

    `low` when even that breaks it (to be seen in the tries, which are the second result).
    """
    tries = []
    held = low
    for _ in range(rounds):
        rate = (low + high) / 2
        report = _run(with_load(with_policy(settings, policy), rate))
        good = report["in_slo"] >= BROKEN_BELOW
        tries.append({"requests_per_s": rate, "in_slo": report["in_slo"], "hit_rate": report["hit_rate"]})
        low, high = (rate, high) if good else (low, rate)
        held = low
    return held, tries


def _run(settings: SimulationSettings) -> dict[str, Any]:
    cluster = Cluster(settings)
    cluster.run()
    return cluster.report()
