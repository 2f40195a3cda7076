"""Every object passes strict schemas, and no mistake in any of them does."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import changed, paths, replaced
from tests.k8s.strict_schemas import CRDS, KUBERNETES, Schemas, check, crd_schemas, own_schemas, strict_schema


@functools.cache
def from_crds() -> Schemas:
    return {**own_schemas(), **crd_schemas(CRDS)}


# The small schemas always; those of the CRDs themselves where they are (OUTRIDER_CRDS).
SOURCES = [own_schemas, from_crds] if CRDS.is_dir() else [own_schemas]


@pytest.mark.parametrize("schemas", SOURCES)
def test_every_object_is_valid(objects: list[Manifest], schemas: Callable[[], Schemas]) -> None:
    assert {one["metadata"]["name"]: errors for one in objects if (errors := check(one, schemas))} == {}


def distinct(objects: list[Manifest]) -> list[Manifest]:
    """One of each kind: the largest."""
    largest: dict[str, Manifest] = {}
    for one in sorted(objects, key=lambda one: len(str(one))):
        largest[one["kind"]] = one
    return list(largest.values())


def places(one: Manifest) -> list[tuple[tuple[str | int, ...], Any]]:
    """Each place of a document with its value; of places that differ in list indices only, the first."""
    first = {}
    for where, value in paths(one):
        first.setdefault(tuple("*" if isinstance(key, int) else key for key in where), (where, value))
    return list(first.values())


@pytest.mark.parametrize("schemas", SOURCES)
def test_a_wrong_key_is_refused_wherever_it_stands(production: list[Manifest], schemas: Callable[[], Schemas]) -> None:
    """In every object inside every kind, but for those whose keys are free."""
    free = {
        "labels",
        "annotations",
        "matchLabels",
        "data",
        "rayStartParams",
        "nodeSelector",
        "limits",
        "requests",
        "metadata",
    }
    missed = []
    for one in distinct(production):
        for where, value in places(one):
            if not isinstance(value, dict) or (where and where[-1] in free):
                continue
            with changed(one, (*where, "replicaz"), 1):
                if not check(one, schemas, KUBERNETES[-1:]):
                    missed.append((one["kind"], where))
    assert missed == []


@pytest.mark.parametrize("schemas", SOURCES)
def test_a_wrong_type_is_refused_wherever_it_stands(production: list[Manifest], schemas: Callable[[], Schemas]) -> None:
    missed = []
    for one in distinct(production):
        for where, value in places(one):
            if not where or isinstance(value, dict | list):
                continue
            with changed(one, where, [value]):
                if not check(one, schemas, KUBERNETES[-1:]):
                    missed.append((one["kind"], where))
    assert missed == []


@pytest.mark.parametrize("schemas", SOURCES)
@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("RayService", ("spec", "rayClusterConfig", "autoscalerOptions", "version"), "v3"),
        ("RayService", ("spec", "rayClusterConfig", "authOptions", "mode"), "kerberos"),
        ("RayService", ("spec", "rayClusterConfig", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        ("RayService", ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "maxReplicas"), "8"),
        ("PodDisruptionBudget", ("spec", "minAvailable"), {"percent": 50}),
        ("NetworkPolicy", ("spec", "policyTypes"), "Ingress"),
        ("Unheard", ("kind",), "Unheard"),
        ("Namespace", ("apiVersion",), "v7"),
        ("ConfigMap", ("metadata", "name"), "Not A Name"),
    ],
)
def test_known_mistakes_are_refused(
    production: list[Manifest], schemas: Callable[[], Schemas], kind: str, where: tuple[str | int, ...], value: object
) -> None:
    one = next((one for one in production if one["kind"] == kind), production[0])
    assert check(replaced(one, where, value), schemas)


def test_conversion_keeps_what_the_api_server_would_check() -> None:
    schema = {
        "type": "object",
        "description": "x",
        "required": ["size", "mode"],
        "properties": {
            "size": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "mode": {"type": "string", "default": "a", "nullable": True},
            "count": {"type": "integer", "format": "int32"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
        },
    }
    assert strict_schema(schema) == {
        "type": "object",
        "required": ["size"],
        "additionalProperties": False,
        "properties": {
            "size": {"type": ["integer", "string"]},
            "mode": {"type": ["string", "null"]},
            "count": {"minimum": -(2**31), "maximum": 2**31 - 1, "type": "integer"},
            "free": {"type": "object", "properties": {"a": {}}},
        },
    }
