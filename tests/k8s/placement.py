"""Where Ray's own autoscaler would start pods for the application, asked without a cluster.

It uses private parts of Ray, which a newer Ray may move: then this module is what must follow.
"""

import math
from collections import Counter
from typing import Any

from ray._raylet import IMPLICIT_RESOURCE_PREFIX  # by it Serve keeps max_replicas_per_node
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated import autoscaler_pb2, common_pb2

from cluster.config.arguments import OutriderArgs
from cluster.config.pools import Pool
from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import cluster

__all__ = ["bounds", "launches", "pods_needed", "pools", "with_bounds"]

AFFINITY = ResourceRequestUtil.PlacementConstraintType.AFFINITY


def pools(args: OutriderArgs) -> dict[str, tuple[Pool, int]]:
    """Each pool by the role of its pods, with its tensor_parallel_size."""
    found: dict[str, tuple[Pool, int]] = {
        "ingress": (args.gateway, 1),
        "verify": (args.target, args.target.config.model.tensor_parallel_size),
    }
    if args.draft is not None:
        found["draft"] = (args.draft, args.draft.config.model.tensor_parallel_size)
    return found


def bounds(pool: Pool) -> tuple[int, int]:
    """Fewest and most replicas."""
    if pool.autoscaling is None:
        return pool.num_replicas, pool.num_replicas
    return pool.autoscaling.min_replicas, pool.autoscaling.max_replicas


def with_bounds(service: Manifest, low: int) -> Manifest:
    """The RayCluster with another minReplicas in every group: 0 shows what demands alone would start."""
    config = cluster(service)
    config["workerGroupSpecs"] = [{**one, "minReplicas": low} for one in config["workerGroupSpecs"]]
    return config


def launches(config: Manifest, replicas: dict[str, tuple[Pool, int, int]]) -> tuple[Counter[str], int]:
    """`replicas`: by deployment name the pool, its tensor_parallel_size and how many of it.

    Returns how many pods of each group would start, and how many demands no group can ever meet.
    """
    derived = _derive_autoscaling_config_from_ray_cr({"metadata": {"name": "x", "namespace": "x"}, "spec": config})
    known = AutoscalingConfig(configs=derived, skip_content_hash=True)
    singles: list[Any] = []
    gangs: list[Any] = []
    for name, (pool, ranks, number) in replicas.items():
        placement = pool.placement(ranks)
        if ranks > 1:
            gangs += [_gang(f"{name}-{i}", placement) for i in range(number)]
        else:
            singles.append(autoscaler_pb2.ResourceRequestByCount(request=_single(name, pool, placement), count=number))
    reply = ResourceDemandScheduler(None).schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=known.get_node_type_configs(),
            max_num_nodes=known.get_max_num_nodes(),
            idle_timeout_s=60,
            resource_requests=singles,
            gang_resource_requests=gangs,
        )
    )
    started = Counter({one.instance_type: one.count for one in reply.to_launch})
    return started, len(reply.infeasible_resource_requests) + len(reply.infeasible_gang_resource_requests)


def _single(name: str, pool: Pool, placement: dict[str, Any]) -> Any:
    options = placement["ray_actor_options"]
    resources = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0), **options.get("resources", {})}
    if pool.max_replicas_per_node is not None:
        resources[f"{IMPLICIT_RESOURCE_PREFIX}{name}"] = 1 / pool.max_replicas_per_node
    request = ResourceRequestUtil.make({key: value for key, value in resources.items() if value})
    _select(request, options.get("label_selector", {}))
    return request


def _gang(name: str, placement: dict[str, Any]) -> Any:
    """A placement group as the GCS reports it: STRICT_PACK is an affinity that all bundles share."""
    assert placement["placement_group_strategy"] == "STRICT_PACK"
    bundles = placement["placement_group_bundles"]
    selectors = placement.get("placement_group_bundle_label_selector", [{}])
    selectors = selectors * len(bundles) if len(selectors) == 1 else selectors  # as Serve does
    requests = []
    for bundle, selector in zip(bundles, selectors, strict=True):
        request = ResourceRequestUtil.make(bundle, constraints=[(AFFINITY, "placement-group", name)])
        _select(request, selector)
        requests.append(request)
    selected = autoscaler_pb2.BundleSelector(resource_requests=requests)
    return autoscaler_pb2.GangResourceRequest(requests=requests, bundle_selectors=[selected])


def _select(request: Any, labels: dict[str, str]) -> None:
    if labels:
        selector = common_pb2.LabelSelector()
        for key, value in labels.items():
            selector.label_constraints.add(
                label_key=key, operator=common_pb2.LabelSelectorOperator.LABEL_OPERATOR_IN, label_values=[value]
            )
        request.label_selectors.append(selector)


def pods_needed(pool: Pool, ranks: int, per_pod: dict[str, float], number: int) -> int:
    """Fewest pods for so many replicas, by arithmetic."""
    need = {key: value * ranks for key, value in pool.ray_actor_options.as_bundle().items()}
    fits = min(math.floor(per_pod.get(key, 0) / value) for key, value in need.items())
    fits = min(fits, pool.max_replicas_per_node or fits)
    return math.ceil(number / fits) if fits else 10**9
