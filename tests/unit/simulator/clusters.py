"""Small clusters for tests: seconds of simulated time, a few replicas."""

from typing import Any

from benchmarks.simulator.cluster import Cluster
from benchmarks.simulator.settings import SimulationSettings

__all__ = ["SMALL", "ran", "settings"]

SMALL: dict[str, Any] = {
    "duration_s": 12.0,
    "warmup_s": 0.0,
    "verifiers": 3,
    "drafters": 2,
    "workload": {"kind": "system_prompts", "output_tokens": 60, "shared_prompts": 12, "shared_tokens": 512},
    "load": {"base": 10.0},
}


def settings(**changes: Any) -> SimulationSettings:
    return SimulationSettings.model_validate(SMALL | changes)


def ran(**changes: Any) -> Cluster:
    cluster = Cluster(settings(**changes))
    cluster.run()
    return cluster
