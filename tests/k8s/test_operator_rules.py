"""The operator would take every RayService here, and would not take it with any of its known mistakes."""

from typing import Any

import pytest

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import groups, ray_service, replaced
from tests.k8s.operator_rules import ALPHA, violations

CONFIG = ("spec", "rayClusterConfig")
HEAD = (*CONFIG, "headGroupSpec")
DRAFT = (*CONFIG, "workerGroupSpecs", 1)
ENV = ("template", "spec", "containers", 0, "env")
UPGRADE = ("spec", "upgradeStrategy")
INCREMENTAL = {"type": "NewClusterWithIncrementalUpgrade"}
OPTIONS = {"gatewayClassName": "x", "stepSizePercent": 10, "intervalSeconds": 60, "maxSurgePercent": 20}

MISTAKES: list[tuple[tuple[str | int, ...], Any]] = [
    (("metadata", "name"), "o" * 48),
    (("metadata", "name"), "1outrider"),
    (("metadata", "name"), "out_rider"),
    (UPGRADE, {"type": "Recreate"}),
    (UPGRADE, INCREMENTAL),
    (UPGRADE, {"type": "NewCluster", "clusterUpgradeOptions": OPTIONS}),
    (UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": {**OPTIONS, "stepSizePercent": 30}}),
    (UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": {**OPTIONS, "stepSizePercent": 0}}),
    (UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": {**OPTIONS, "intervalSeconds": 0}}),
    (UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": {**OPTIONS, "maxSurgePercent": 120}}),
    (UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": {**OPTIONS, "gatewayClassName": ""}}),
    (("spec", "rayClusterDeletionDelaySeconds"), -1),
    *(((*CONFIG, field), {}) for field in ALPHA),
    ((*CONFIG, "gcsFaultToleranceOptions"), {"backend": "rocksdb"}),
    ((*CONFIG, "rayVersion"), "2.51.0"),
    ((*CONFIG, "rayVersion"), ""),
    ((*CONFIG, "authOptions", "enableK8sTokenAuth"), True),
    ((*CONFIG, "autoscalerOptions", "version"), "v1"),
    ((*HEAD, "headService"), {"metadata": {"name": "mine"}}),
    ((*HEAD, "template", "spec", "containers", 0, "ports"), [{"name": "serve-grpc", "containerPort": 9000}]),
    ((*HEAD, "template", "spec", "containers", 0, "ports"), [{"name": "serve", "containerPort": 8000}]),
    ((*HEAD, "template", "metadata", "annotations", "ray.io/ft-enabled"), "true"),
    ((*HEAD, "template", "spec", "restartPolicy"), "Always"),
    ((*HEAD, "resources"), {"CPU": "0"}),
    ((*HEAD, "rayStartParams", "num-cpus"), 0),
    ((*HEAD, *ENV), [{"name": "RAY_AUTH_MODE", "value": "token"}]),
    ((*DRAFT, *ENV), [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]),
    ((*DRAFT, "rayStartParams", "labels"), "a=b"),
    ((*DRAFT, "labels", "outrider/role"), "a b"),
    ((*DRAFT, "template", "spec", "restartPolicy"), "OnFailure"),
    ((*DRAFT, "groupName"), "verify"),
    ((*DRAFT, "groupName"), "Draft"),
    ((*DRAFT, "minReplicas"), 9),
    ((*DRAFT, "minReplicas"), -1),
    ((*DRAFT, "replicas"), 1),
    ((*DRAFT, "numOfHosts"), 0),
]


def test_the_operator_takes_it(objects: list[Manifest]) -> None:
    assert violations(ray_service(objects)) == []


@pytest.mark.parametrize(
    ("where", "value"), MISTAKES, ids=lambda one: ".".join(map(str, one))[-50:] if isinstance(one, tuple) else None
)
def test_the_operator_refuses_mistakes(base: list[Manifest], where: tuple[str | int, ...], value: Any) -> None:
    assert violations(replaced(ray_service(base), where, value))


def test_incremental_upgrades_need_the_autoscaler(base: list[Manifest]) -> None:
    service = replaced(ray_service(base), UPGRADE, {**INCREMENTAL, "clusterUpgradeOptions": OPTIONS})
    assert violations(service) == []
    assert violations(replaced(service, (*CONFIG, "enableInTreeAutoscaling"), False))


def test_redis_is_given_once(scratch: Any) -> None:
    from tests.k8s.kustomize import with_components

    service = ray_service(with_components(scratch, "gcs-ft"))
    assert violations(replaced(service, (*HEAD, *ENV), [{"name": "RAY_REDIS_ADDRESS", "value": "x:6379"}]))


def test_every_field_of_version_2_needs_version_2(production: list[Manifest]) -> None:
    found = violations(replaced(ray_service(production), (*CONFIG, "autoscalerOptions", "version"), "v1"))
    expected = sum(
        ("idleTimeoutSeconds" in one) + ("priority" in one) for one in groups(ray_service(production)).values()
    )
    assert len(found) == expected >= 5
