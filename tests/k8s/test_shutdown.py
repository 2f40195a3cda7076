"""Pods have the time that their replicas need to end, and disruption budgets leave room to work."""

from dataclasses import dataclass

import pytest

from cluster.config.arguments import OutriderArgs
from tests.k8s.kustomize import K8S, Manifest
from tests.k8s.manifests import cluster, env, groups, of_kind, pod_templates, ray_service, serve_config
from tests.k8s.placement import pools

MARGIN_S = 15  # for Ray's own processes to end
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"


@dataclass(frozen=True)
class Times:
    """Of one kind of pod, in seconds."""

    grace: float  # after it Kubernetes kills
    pre_stop: float
    drain: float  # as long Ray waits for the node to be idle
    shutdown: float  # as long Serve lets a replica finish

    @property
    def enough(self) -> bool:
        """All may take their time one after the other where they do, and Ray waits as long as Serve needs."""
        return self.grace >= self.pre_stop + max(self.drain, self.shutdown) + MARGIN_S and self.drain >= self.shutdown


def times(objects: list[Manifest]) -> dict[str, Times]:
    service = ray_service(objects)
    args = OutriderArgs.model_validate(serve_config(service)["applications"][0]["args"])
    shutdown = {role: pool.graceful_shutdown_timeout_s for role, (pool, _) in pools(args).items()}
    everyone = {"head": cluster(service)["headGroupSpec"], **groups(service)}
    found = {}
    for name, group in everyone.items():
        spec = group["template"]["spec"]
        container = spec["containers"][0]
        command = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert command[0] == "sleep", name
        role = group.get("labels", {}).get("outrider/role")
        drain = env(container)[DRAIN]
        assert drain is not None, name
        found[name] = Times(
            spec["terminationGracePeriodSeconds"], float(command[1]), float(drain), shutdown.get(role, 0.0)
        )
    return found


def test_there_is_time_to_end(objects: list[Manifest]) -> None:
    assert {name: one for name, one in times(objects).items() if not one.enough} == {}


@pytest.mark.parametrize(
    "one", [Times(120, 5, 110, 90), Times(120, 30, 90, 60), Times(120, 5, 60, 90), Times(30, 0, 30, 0)]
)
def test_too_little_time_is_seen(one: Times) -> None:
    assert not one.enough


def test_an_old_cluster_outlives_its_streams(overlay: list[Manifest]) -> None:
    delay = ray_service(overlay)["spec"]["rayClusterDeletionDelaySeconds"]
    assert delay >= 2 * max(one.grace for one in times(overlay).values())


def test_pods_leave_the_endpoints_before_they_drain(objects: list[Manifest]) -> None:
    assert all(one.pre_stop >= 5 for name, one in times(objects).items() if name != "head")


def budget_faults(objects: list[Manifest]) -> list[str]:
    """Whole numbers, pods that exist, and no more than always stand there."""
    service, found = ray_service(objects), []
    smallest = {"head": 1, **{name: one["minReplicas"] for name, one in groups(service).items()}}
    for budget in of_kind(objects, "PodDisruptionBudget"):
        name, spec = budget["metadata"]["name"], budget["spec"]
        if set(spec) != {"minAvailable", "selector"} or not isinstance(spec["minAvailable"], int):
            found.append(f"{name}: minAvailable as a whole number, and nothing else")
            continue
        labels = spec["selector"]["matchLabels"]
        chosen = [one for one in pod_templates(objects) if labels.items() <= one.labels.items()]
        components = {one.labels["app.kubernetes.io/component"] for one in chosen}
        if len(components) != 1:
            found.append(f"{name}: selects {sorted(components)}, one is needed")
        elif not 1 <= spec["minAvailable"] <= smallest[components.pop()]:
            found.append(f"{name}: minAvailable {spec['minAvailable']} is not among the pods that always stand there")
    return found


def test_budgets_are_sound(objects: list[Manifest]) -> None:
    assert budget_faults(objects) == []
    protected = {one["metadata"]["name"] for one in of_kind(objects, "PodDisruptionBudget")}
    assert protected == {"outrider-head", "outrider-ingress", "outrider-verify"}, "drafters can be done without"


def test_in_production_one_of_two_may_go(production: list[Manifest]) -> None:
    assert all(
        group["minReplicas"] >= 2 for name, group in groups(ray_service(production)).items() if name != "draft-spot"
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"minAvailable": "50%"},
        {"maxUnavailable": 1},
        {"minAvailable": 5},
        {"minAvailable": 0},
        {"selector": {"matchLabels": {"app.kubernetes.io/part-of": "outrider"}}},
        {"selector": {"matchLabels": {"app.kubernetes.io/component": "nobody"}}},
    ],
    ids=str,
)
def test_unsound_budgets_are_found(base: list[Manifest], spec: Manifest) -> None:
    budget = of_kind(base, "PodDisruptionBudget")[1]
    budget["spec"].update(spec)
    assert budget_faults(base)


def test_one_rule_in_the_same_words() -> None:
    """Wherever people meet it, and with the numbers of this module."""
    chart = K8S / "helm/outrider"
    rule = f"t least preStop (5) + {{}} + {MARGIN_S:.0f}"
    for path, drain in (
        (K8S / "README.md", "drain"),
        (chart / "templates/_group.tpl", "drain"),
        (chart / "templates/_helpers.tpl", "drain"),
        (chart / "templates/_helpers.tpl", "drainSeconds"),
        (chart / "values.yaml", "drainSeconds"),
        (chart / "README.md", "`drainSeconds`"),
    ):
        assert rule.format(drain) in path.read_text(), path
