"""The Application for Argo CD: valid, and it leaves alone what the autoscaler and the operator write, nothing else."""

import copy
import re
from typing import Any

import yaml

from tests.k8s.chart import CHART
from tests.k8s.kustomize import K8S, OVERLAYS, Manifest, build
from tests.k8s.manifests import changed, groups, named, paths, ray_service
from tests.k8s.strict_schemas import check, own_schemas

APPLICATION: Manifest = yaml.safe_load((K8S / "gitops/argocd-application.yaml").read_text())
SPEC = APPLICATION["spec"]
PATH = re.compile(r"(\.\w+(\[\])?)+")  # of jq: as much as is needed here, and lists by [] only


def keys(rule: Manifest) -> list[list[str]]:
    """The places of one rule; [] stands for all entries of a list."""
    found = []
    for expression in rule.get("jqPathExpressions", []):
        assert PATH.fullmatch(expression), expression
        found.append(expression.replace("[]", ".[]").split(".")[1:])
    for pointer in rule.get("jsonPointers", []):
        assert pointer.startswith("/")
        found.append([part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]])
    return found


def drop(document: Any, where: list[str]) -> None:
    head, *rest = where
    if head == "[]":
        for one in document:
            drop(one, rest)
    elif not rest:
        document.pop(head, None)
    elif head in document:
        drop(document[head], rest)


def compared(one: Manifest) -> Manifest:
    """What Argo CD still compares of an object."""
    one = copy.deepcopy(one)
    for rule in SPEC["ignoreDifferences"]:
        group = one["apiVersion"].rpartition("/")[0]  # empty for the core
        matches = (group, one["kind"]) == (rule["group"], rule["kind"])
        if matches and rule.get("name", one["metadata"]["name"]) == one["metadata"]["name"]:
            for where in keys(rule):
                drop(one, where)
    return one


def test_it_is_valid_and_no_mistake_in_it_is() -> None:
    assert check(APPLICATION, own_schemas) == []
    for where, value in list(paths(APPLICATION)):
        if isinstance(value, dict) and where[:1] != ("metadata",):
            with changed(APPLICATION, (*where, "replicaz"), 1):
                assert check(APPLICATION, own_schemas), where
        elif where and not isinstance(value, dict | list):
            with changed(APPLICATION, where, [value]):
                assert check(APPLICATION, own_schemas), where


def test_it_applies_what_is_there() -> None:
    assert SPEC["source"]["path"] == "deploy/k8s/overlays/production"
    assert (K8S.parents[1] / SPEC["source"]["path"] / "kustomization.yaml").exists()
    namespaces = {one["metadata"].get("namespace") for one in build(K8S / "overlays/production")} - {None}
    assert namespaces == {SPEC["destination"]["namespace"]}
    text = (K8S / "gitops/argocd-application.yaml").read_text()
    for path in re.findall(r"valueFiles: \[([^\]]+)\]|, path: ([^}]+)\}", text):
        assert (CHART / (path[0] or path[1])).exists(), path


def test_what_others_write_is_no_difference() -> None:
    """RespectIgnoreDifferences makes that hold for syncs, not only for what is shown."""
    assert "RespectIgnoreDifferences=true" in SPEC["syncPolicy"]["syncOptions"]
    for name in OVERLAYS:
        objects = build(K8S / "overlays" / name)
        service, claim = ray_service(objects), named(objects, "PersistentVolumeClaim", "outrider-models")
        live = copy.deepcopy(service)
        for group in groups(live).values():
            group["replicas"] = 3
            group["scaleStrategy"] = {"workersToDelete": ["a-pod"]}
        assert compared(live) == compared(service) == service, "in git there are no such fields"
        bound = copy.deepcopy(claim)
        bound["spec"]["volumeName"] = "pvc-1"
        assert compared(bound) == claim
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": {"x": 1}}
    noted = {"ray.io/kuberay-version": "1.7.0", "ray.io/num-worker-groups": "3", "own": "kept"}
    seen = compared({**cluster, "metadata": {"name": "c", "annotations": noted}})
    assert seen["metadata"]["annotations"] == {"own": "kept"}


def test_what_people_change_is_one() -> None:
    """Bounds, images, the Serve config: a change by hand is seen and set back."""
    for one in build(K8S / "overlays/production"):
        assert compared(one) == one
    service = ray_service(build(K8S / "overlays/production"))
    for where, value in (
        (("spec", "serveConfigV2"), "x"),
        (("spec", "rayClusterConfig", "workerGroupSpecs", 0, "maxReplicas"), 99),
        (("spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "containers", 0, "image"), "x"),
    ):
        before = compared(service)
        with changed(service, where, value):
            assert compared(service) != before
