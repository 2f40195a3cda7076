"""Pods keep to the restricted profile, and each way to leave it is found."""

from typing import Any

import pytest

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import PodTemplate, changed, cluster, containers, named, of_kind, pod_templates, ray_service
from tests.k8s.security_profile import container_faults, image_faults, literal_secrets, violations


def test_all_pods_keep_to_the_profile(objects: list[Manifest]) -> None:
    assert {one.owner: faults for one in pod_templates(objects) if (faults := violations(one))} == {}


def test_so_does_the_autoscaler_beside_the_head(objects: list[Manifest]) -> None:
    """The operator adds it; without this a restricted namespace refuses the head."""
    options = cluster(ray_service(objects))["autoscalerOptions"]
    assert container_faults(options) == []
    assert options["resources"]["requests"]["memory"] == options["resources"]["limits"]["memory"]
    assert {"/tmp", "/home/outrider"} <= {one["mountPath"] for one in options["volumeMounts"]}  # noqa: S108


def test_only_the_head_has_a_token_of_kubernetes(objects: list[Manifest]) -> None:
    """Its pods ask for one themselves; by the accounts nobody gets one unasked."""
    accounts = of_kind(objects, "ServiceAccount")
    assert accounts
    assert {one["metadata"]["name"]: one["automountServiceAccountToken"] for one in accounts} == dict.fromkeys(
        (one["metadata"]["name"] for one in accounts), False
    )


def test_the_namespace_enforces_it(overlay: list[Manifest]) -> None:
    labels = named(overlay, "Namespace", "outrider")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_images_are_pinned_and_secrets_stand_nowhere(objects: list[Manifest]) -> None:
    for template in pod_templates(objects):
        for container in containers(template.spec):
            assert image_faults(container["image"]) == []
            assert literal_secrets(container) == []


def test_ray_pods_have_room_to_write(objects: list[Manifest]) -> None:
    """The root is read-only: what Ray and Python write to must be volumes, and those have limits."""
    for template in pod_templates(objects):
        if template.group is None:
            continue
        mounts = {one["mountPath"] for one in template.spec["containers"][0]["volumeMounts"]}
        assert {"/tmp", "/home/outrider", "/dev/shm"} <= mounts, template.owner  # noqa: S108
        scratch = [one for one in template.spec["volumes"] if "emptyDir" in one]
        assert all("sizeLimit" in one["emptyDir"] for one in scratch), template.owner
        assert next(one for one in scratch if one["name"] == "shared-mem")["emptyDir"]["medium"] == "Memory"


POD: list[tuple[tuple[str | int, ...], Any]] = [
    (("hostNetwork",), True),
    (("hostPID",), True),
    (("hostIPC",), True),
    (("volumes",), [{"name": "tmp", "hostPath": {"path": "/"}}]),
    (("securityContext", "runAsUser"), 0),
    (("securityContext", "runAsNonRoot"), False),
    (("automountServiceAccountToken",), None),
]
CONTAINER: list[tuple[tuple[str | int, ...], Any]] = [
    (("securityContext", "privileged"), True),
    (("securityContext", "allowPrivilegeEscalation"), True),
    (("securityContext", "readOnlyRootFilesystem"), False),
    (("securityContext", "runAsNonRoot"), False),
    (("securityContext", "runAsUser"), 0),
    (("securityContext", "procMount"), "Unmasked"),
    (("securityContext", "capabilities"), {"drop": ["ALL"], "add": ["NET_ADMIN"]}),
    (("securityContext", "seccompProfile"), {"type": "Unconfined"}),
    (("securityContext",), {}),
    (("ports",), [{"containerPort": 80, "hostPort": 80}]),
    (("resources",), {}),
    (("resources", "limits"), {"memory": "1Ti"}),
]


def templates(objects: list[Manifest]) -> list[PodTemplate]:
    found = pod_templates(objects)
    assert len(found) == 7, "head, four groups, the prefetch Job, Redis"
    return found


@pytest.mark.parametrize(("where", "value"), POD)
def test_a_pod_that_leaves_it_is_found(production: list[Manifest], where: tuple[str | int, ...], value: Any) -> None:
    for template in templates(production):
        with changed(template.spec, where, value):
            assert violations(template), template.owner


@pytest.mark.parametrize(("where", "value"), CONTAINER)
def test_a_container_that_leaves_it_is_found(
    production: list[Manifest], where: tuple[str | int, ...], value: Any
) -> None:
    for template in templates(production):
        for container in containers(template.spec):
            with changed(container, where, value):
                assert violations(template), (template.owner, container["name"])


@pytest.mark.parametrize("image", ["outrider-cpu", "outrider-cpu:latest", "host:5000/outrider-cpu", "x@sha256:12"])
def test_images_without_a_version_are_found(image: str) -> None:
    assert image_faults(image)


def test_images_with_one_are_taken() -> None:
    assert image_faults("host:5000/outrider-cpu:1.0") == []
    assert image_faults("outrider-cpu@sha256:" + "0" * 64) == []


def test_a_secret_in_the_open_is_found() -> None:
    assert literal_secrets({"env": [{"name": "OUTRIDER_INTERNAL_TOKEN", "value": "x"}]})
    assert literal_secrets({"env": [{"name": "REDIS_PASSWORD", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]})
