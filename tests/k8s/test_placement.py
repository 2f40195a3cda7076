"""Each replica starts a pod of its own group and of no other, by Ray's own scheduler."""

from collections import Counter

import pytest

from cluster.config.arguments import OutriderArgs
from cluster.config.pools import Pool
from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import cluster, groups, quantity, ray_service, serve_config
from tests.k8s.placement import bounds, launches, pods_needed, pools, with_bounds

Demand = dict[str, tuple[Pool, int, int]]


def settings(objects: list[Manifest]) -> OutriderArgs:
    return OutriderArgs.model_validate(serve_config(ray_service(objects))["applications"][0]["args"])


def capacity(group: Manifest) -> dict[str, float]:
    """What Ray counts of one pod."""
    resources, extra = group["template"]["spec"]["containers"][0]["resources"], group.get("resources", {})
    asked = {**resources["requests"], **resources["limits"]}
    return {"CPU": quantity(asked["cpu"]), "GPU": float(extra.get("GPU", asked.get("nvidia.com/gpu", 0)))}


def for_role(started: Counter[str], service: Manifest) -> Counter[str]:
    """Pods by role: several groups may have the same."""
    found: Counter[str] = Counter()
    for name, number in started.items():
        found["head" if name not in groups(service) else groups(service)[name]["labels"]["outrider/role"]] += number
    return found


@pytest.mark.parametrize("which", [0, 1], ids=["fewest", "most"])
def test_each_pool_starts_its_own_pods_from_nothing(objects: list[Manifest], which: int) -> None:
    service = ray_service(objects)
    for role, (pool, ranks) in pools(settings(objects)).items():
        number = bounds(pool)[which]
        started, infeasible = launches(with_bounds(service, 0), {role: (pool, ranks, number)})
        assert infeasible == 0, role
        needed = pods_needed(pool, ranks, capacity(groups(service)[role]), number)
        assert for_role(started, service) == Counter({role: needed}), role


def test_all_pools_at_their_most_fit_the_groups(objects: list[Manifest]) -> None:
    service = ray_service(objects)
    demand: Demand = {role: (pool, ranks, bounds(pool)[1]) for role, (pool, ranks) in pools(settings(objects)).items()}
    started, infeasible = launches(cluster(service), demand)
    assert infeasible == 0
    for name, number in started.items():
        assert number <= groups(service)[name]["maxReplicas"]
    expected = {
        role: pods_needed(pool, ranks, capacity(groups(service)[role]), n) for role, (pool, ranks, n) in demand.items()
    }
    assert dict(for_role(started, service)) == expected


def test_what_runs_always_fits_what_stands_always(objects: list[Manifest]) -> None:
    """minReplicas: enough for the fewest replicas, so that nothing waits for the first pods; and no pod idle."""
    service = ray_service(objects)
    for role, (pool, ranks) in pools(settings(objects)).items():
        group = groups(service)[role]
        assert group["minReplicas"] == pods_needed(pool, ranks, capacity(group), bounds(pool)[0]), role
        assert group["maxReplicas"] == pods_needed(pool, ranks, capacity(group), bounds(pool)[1]), role


def test_without_selectors_a_drafter_takes_a_verifiers_pod(base: list[Manifest]) -> None:
    """Why every deployment has one; if this fails, Ray has changed, and the tests above prove less."""
    pool, ranks = pools(settings(base))["draft"]
    free = pool.model_copy(
        update={"ray_actor_options": pool.ray_actor_options.model_copy(update={"label_selector": {}})}
    )
    config = with_bounds(ray_service(base), 0)
    config["workerGroupSpecs"] = [one for one in config["workerGroupSpecs"] if one["groupName"] != "draft"]
    started, infeasible = launches(config, {"draft": (free, ranks, 3)})
    assert (started, infeasible) == (Counter({"verify": 1}), 0)
    started, infeasible = launches(config, {"draft": (pool, ranks, 3)})
    assert (started, infeasible) == (Counter(), 3)


def test_every_pool_selects_its_pods(objects: list[Manifest]) -> None:
    for role, (pool, _) in pools(settings(objects)).items():
        assert pool.ray_actor_options.label_selector == {"outrider/role": role}


def test_a_group_without_room_for_a_replica_is_found(base: list[Manifest]) -> None:
    pool, ranks = pools(settings(base))["verify"]
    config = with_bounds(ray_service(base), 0)
    for one in config["workerGroupSpecs"]:
        for part in one["template"]["spec"]["containers"][0]["resources"].values():
            if part.get("nvidia.com/gpu") == "4":
                part["nvidia.com/gpu"] = "3"
    assert launches(config, {"verify": (pool, ranks, 1)}) == (Counter(), 1)


def test_gpu_pods_land_on_their_gpus_only(overlay: list[Manifest]) -> None:
    for name, group in groups(ray_service(overlay)).items():
        spec = group["template"]["spec"]
        on_gpu = capacity(group)["GPU"] > 0
        assert ("nvidia.com/gpu.product" in spec.get("nodeSelector", {})) == on_gpu, name
        assert any(one["key"] == "nvidia.com/gpu" for one in spec.get("tolerations", [])) == on_gpu, name
        assert spec["containers"][0]["image"].startswith("outrider-cuda:" if on_gpu else "outrider-cpu:"), name
        assert ("ray.io/accelerator-type" in group["labels"]) == on_gpu, name
