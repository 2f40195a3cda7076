"""What one autoscaling decision costs in Serve's controller, by the size of the pools.

python -m benchmarks.autoscaling_cost [--verifiers 1000] [--drafters 2000] [--rounds 50] [--out results.json]

`decide` is the pure function alone; `adapter` is the whole call as Serve makes it, with a new report of every replica
read from the controller's tables. Serve calls ten times a second; a decision is made each `interval_s` (a second), the
other calls answer from memory (`between`). CPU time, so that a busy machine changes little.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.serve._private.common import TimeStampedValue

from cluster.autoscaling.decide import decide
from cluster.autoscaling.model import ClusterModel, ReplayModel
from cluster.autoscaling.snapshot import State
from cluster.config.autoscaling import AutoscalingSettings
from cluster.deployments.autoscaler import DRAFTER_NUMBERS, DRAFTERS, VERIFIER_NUMBERS, VERIFIERS, Autoscaler
from workers.core.provenance import provenance, write_result

__all__ = ["measure"]


def measure(verifiers: int, drafters: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of CPU time: median and largest of each."""
    return {"decide": _decide(verifiers, drafters, rounds), **_adapter(verifiers, drafters, rounds)}


def _decide(verifiers: int, drafters: int, rounds: int) -> dict[str, float]:
    cluster = ClusterModel(ReplayModel(), verifiers, drafters)
    for _ in range(60):
        cluster.advance(1.0, 2.0 * verifiers)
    snapshot = cluster.snapshot((1, 2 * verifiers), (1, 2 * drafters))
    settings, state = AutoscalingSettings(), State()
    return _timed(lambda: decide(snapshot, settings, state), rounds)


def _adapter(verifiers: int, drafters: int, rounds: int) -> dict[str, dict[str, float]]:
    now = {"s": 0.0}
    policy = Autoscaler(lambda: now["s"])
    contexts = {
        Key(VERIFIERS): _context(VERIFIERS, verifiers, VERIFIER_NUMBERS),
        Key(DRAFTERS): _context(DRAFTERS, drafters, DRAFTER_NUMBERS),
    }

    def due() -> None:
        now["s"] += 1.0
        policy(contexts)

    def arrive() -> None:
        for context in contexts.values():
            for series in (one for by_replica in context.raw_metrics.values() for one in by_replica.values()):
                series[0] = TimeStampedValue(now["s"], 0.5)

    adapter = _timed(due, rounds, arrive)
    return {"adapter": adapter, "between": _timed(lambda: policy(contexts), rounds)}


class Key(str):
    """Stands for a DeploymentID."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


def _context(name: str, count: int, numbers: Sequence[str]) -> Any:
    raw = {number: {f"{name}#{n}": [TimeStampedValue(1.0, 0.5)] for n in range(count)} for number in numbers}
    policy = SimpleNamespace(policy_kwargs={})
    return SimpleNamespace(
        deployment_name=name,
        current_num_replicas=count,
        target_num_replicas=count,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=2 * count,
        raw_metrics=raw,
        config=SimpleNamespace(policy=policy, upscale_delay_s=0.0, downscale_delay_s=0.0),
    )


def _timed(call: Callable[[], object], rounds: int, before: Callable[[], object] = int) -> dict[str, float]:
    times = []
    for _ in range(rounds):
        before()
        started = time.process_time()
        call()
        times.append((time.process_time() - started) * 1e3)
    return {"median_ms": statistics.median(times), "max_ms": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifiers", type=int, default=1000)
    parser.add_argument("--drafters", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result = measure(args.verifiers, args.drafters, args.rounds)
    for name, numbers in result.items():
        print(f"{name:8} median {numbers['median_ms']:7.2f} ms, largest {numbers['max_ms']:7.2f} ms")
    if args.out is not None:
        size = {"verifiers": args.verifiers, "drafters": args.drafters, "rounds": args.rounds}
        write_result(args.out, result, provenance(config=size))


if __name__ == "__main__":
    main()
