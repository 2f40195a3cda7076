"""Where things stand in a RayService and its neighbours."""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.k8s.kustomize import Manifest

__all__ = [
    "PodTemplate",
    "changed",
    "cluster",
    "containers",
    "env",
    "groups",
    "named",
    "of_kind",
    "paths",
    "pod_templates",
    "quantity",
    "ray_service",
    "replaced",
    "serve_config",
]

UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


@dataclass(frozen=True)
class PodTemplate:
    """One kind of pod that an object makes."""

    owner: str
    labels: dict[str, str]
    spec: Manifest
    group: Manifest | None  # of a RayService: the head's or a worker group


def of_kind(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in objects if one["kind"] == kind]


def named(objects: list[Manifest], kind: str, name: str) -> Manifest:
    found = [one for one in of_kind(objects, kind) if one["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: found {len(found)}"
    return found[0]


def ray_service(objects: list[Manifest]) -> Manifest:
    found = of_kind(objects, "RayService")
    assert len(found) == 1
    return found[0]


def cluster(service: Manifest) -> Manifest:
    return dict(service["spec"]["rayClusterConfig"])


def groups(service: Manifest) -> dict[str, Manifest]:
    """Worker groups by name, in their order."""
    return {group["groupName"]: group for group in cluster(service)["workerGroupSpecs"]}


def serve_config(service: Manifest) -> Manifest:
    document = yaml.safe_load(service["spec"]["serveConfigV2"])
    assert isinstance(document, dict)
    return document


def containers(spec: Manifest) -> list[Manifest]:
    """All containers of a pod, those that run first included."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def env(container: Manifest) -> dict[str, str | None]:
    """Variables by name; None where the value comes from elsewhere."""
    return {one["name"]: one.get("value") for one in container.get("env", [])}


def pod_templates(objects: list[Manifest]) -> list[PodTemplate]:
    """Of RayServices, Jobs and StatefulSets. Another kind that makes pods fails here."""
    found = []
    for one in objects:
        owner, spec = f"{one['kind']} {one['metadata']['name']}", one.get("spec") or {}
        if one["kind"] == "RayService":
            head = cluster(one)["headGroupSpec"]
            for name, group in {"head": head, **groups(one)}.items():
                template = group["template"]
                found.append(PodTemplate(f"{owner} {name}", template["metadata"]["labels"], template["spec"], group))
        elif "template" in spec and one["kind"] != "ExternalSecret":
            assert one["kind"] in ("Job", "StatefulSet"), one["kind"]
            found.append(PodTemplate(owner, spec["template"]["metadata"]["labels"], spec["template"]["spec"], None))
    return found


def quantity(text: str | int) -> float:
    """A Kubernetes quantity as a number."""
    text = str(text)
    digits = text.rstrip("mkMGTi")
    return float(digits) * UNITS[text[len(digits) :]]


def paths(value: Any, where: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every place in a document, the document itself included."""
    yield where, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*where, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*where, index))


@contextlib.contextmanager
def changed(document: Any, where: tuple[str | int, ...], value: Any) -> Iterator[None]:
    """For a while, another value at one place (or a new key); thousands of copies would take long."""
    for key in where[:-1]:
        document = document[key]
    missing = isinstance(document, dict) and where[-1] not in document
    before = None if missing else document[where[-1]]
    document[where[-1]] = value
    try:
        yield
    finally:
        if missing:
            del document[where[-1]]
        else:
            document[where[-1]] = before


def replaced(document: Manifest, where: tuple[str | int, ...], value: Any) -> Manifest:
    """A copy with another value at one place."""
    document = copy.deepcopy(document)
    target: Any = document
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    return document
