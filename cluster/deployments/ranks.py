"""The other ranks of a tensor-parallel replica: actors in the bundles 1..N-1 of the replica's own placement group.

The bundles are on one node (STRICT_PACK), so that ranks speak over the loopback interface, which nobody outside can
reach. Ray ends the actors with their owner, the replica, and frees the placement group when the replica is gone.
"""

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

import psutil
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError

if TYPE_CHECKING:
    from workers.parallel.launcher import OnEnd, RankLauncher, RankProcess, RankSpec

__all__ = ["ActorLauncher", "TensorParallelRank", "launcher_for"]

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 300.0  # for an actor's process; its bundle is reserved already


class TensorParallelRank:
    """The actor. Its process does nothing else."""

    def pid(self) -> int:
        return os.getpid()

    def serve(self, spec: str) -> None:
        """Load a shard and follow rank 0 until it says stop."""
        from workers.parallel.launcher import RankSpec  # torch belongs into replicas only
        from workers.runner.rank import serve_rank

        serve_rank(RankSpec.from_json(spec))


class ActorLauncher:
    """A `RankLauncher` inside a replica with a placement group of one bundle for each rank."""

    host = LOOPBACK

    def __init__(self, bundles: list[dict[str, float]], placement_group: Any) -> None:
        self._bundles = bundles
        self._placement_group = placement_group

    def device_of(self, rank: int, device: str) -> str:
        """Ray shows an actor its own GPU only."""
        return "cuda:0" if device == "cuda" else device

    def start(self, spec: "RankSpec", on_end: "OnEnd") -> "RankProcess":
        rank = spec.seat.rank
        bundle = dict(self._bundles[rank])
        actor_class = ray.remote(TensorParallelRank).options(
            num_cpus=bundle.pop("CPU", 0),
            num_gpus=bundle.pop("GPU", 0),
            memory=bundle.pop("memory", None),
            resources=bundle,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._placement_group, placement_group_bundle_index=rank
            ),
        )
        return _RankActor(actor_class.remote(), spec, on_end)


class _RankActor:
    def __init__(self, actor: Any, spec: "RankSpec", on_end: "OnEnd") -> None:
        self._actor = actor
        self._rank = spec.seat.rank
        self._on_end = on_end
        self._ended = threading.Event()
        self._process: psutil.Process | None = None
        self._pid = actor.pid.remote()
        self._served = actor.serve.remote(spec.to_json())
        threading.Thread(target=self._watch, name=f"rank-{self._rank}", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def kill(self) -> None:
        ray.kill(self._actor, no_restart=True)
        if self._process is not None:  # a frozen process does not hear Ray, but it is on this node
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process.kill()

    def _watch(self) -> None:
        try:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process = psutil.Process(ray.get(self._pid, timeout=START_TIMEOUT_S))
            ray.get(self._served)
            words = "it has stopped"
        except Exception as error:  # noqa: BLE001 - whatever ended it, it is gone
            words = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        self._ended.set()
        self._on_end(self._rank, words)


def launcher_for(model: ModelConfig) -> "RankLauncher | None":
    """For the replica that calls it; None when its model is not shared by several ranks."""
    if model.tensor_parallel_size == 1:
        return None
    group = ray.util.get_current_placement_group()
    bundles = [] if group is None else group.bundle_specs
    if len(bundles) != model.tensor_parallel_size:
        raise ConfigurationError(
            f"tensor_parallel_size {model.tensor_parallel_size} needs as many bundles in the replica's placement "
            f"group, which has {len(bundles)}; deploy through cluster.app, which reserves them"
        )
    return ActorLauncher(bundles, group)
