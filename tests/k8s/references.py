"""What objects name of each other, and what must be there before them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import containers, of_kind, paths, pod_templates

__all__ = ["PREREQUISITES", "Reference", "dangling", "references"]

# Secrets that exist before anything is applied (deploy/k8s/README.md says how), with their keys.
PREREQUISITES = {
    "outrider-ray-token": {"auth_token"},
    "outrider-internal-token": {"token"},
    "outrider-api-keys": {"keys.yaml"},
    "outrider-redis": {"password"},
    "outrider-tls": {"tls.crt", "tls.key"},
    "outrider-hf-token": {"token"},
}
# Field → kind of what it names. The fields whose value is an object give name and key in it.
FIELDS = {
    "secretKeyRef": "Secret",
    "configMapKeyRef": "ConfigMap",
    "secretRef": "Secret",
    "configMapRef": "ConfigMap",
    "secretName": "Secret",
    "claimName": "PersistentVolumeClaim",
    "serviceAccountName": "ServiceAccount",
    "priorityClassName": "PriorityClass",
    "resourceClaimTemplateName": "ResourceClaimTemplate",
    "serviceName": "Service",
    "backendRefs": "Service",
    "certificateRefs": "Secret",
    "parentRefs": "Gateway",
}


@dataclass(frozen=True)
class Reference:
    """One place that names another object."""

    owner: str
    where: tuple[str | int, ...]  # of the name, in the owner
    kind: str
    name: str
    part: str | int | None  # a key, a port, a section


def references(one: Manifest) -> Iterator[Reference]:
    """All that stand in one object."""
    owner = f"{one['kind']} {one['metadata']['name']}"
    for where, value in paths(one):
        field = where[-1] if where else None
        if field == "redisAddress":
            host = re.sub(r"^redis://|:\d+$", "", value)
            yield Reference(owner, where, "Service", host, int(value.rsplit(":", 1)[1]))
        elif field in FIELDS and isinstance(value, str):
            yield Reference(owner, where, FIELDS[field], value, None)
        elif field in FIELDS and isinstance(value, dict):
            yield Reference(owner, (*where, "name"), FIELDS[field], value["name"], value.get("key"))
        elif len(where) > 1 and where[-2] in FIELDS and isinstance(value, dict):
            part = value.get("port", value.get("sectionName"))
            yield Reference(owner, (*where, "name"), FIELDS[str(where[-2])], value["name"], part)


def provided(objects: list[Manifest]) -> dict[tuple[str, str], set[Any]]:
    """Every object by kind and name, with its parts."""
    there: dict[tuple[str, str], set[Any]] = {("Secret", name): set(keys) for name, keys in PREREQUISITES.items()}
    for one in objects:
        kind, name, spec = one["kind"], one["metadata"]["name"], one.get("spec") or {}
        parts: set[Any] = set(one.get("data", {}))
        if kind == "Service":
            parts = {port["port"] for port in spec["ports"]}
        elif kind == "Gateway":
            parts = {listener["name"] for listener in spec["listeners"]}
        elif kind == "ExternalSecret":
            kind, name = "Secret", spec["target"]["name"]
            parts = {entry["secretKey"] for entry in spec["data"]}
        elif kind == "RayService":  # the operator makes this Service, from the head's ports that begin with `serve`
            ports = spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"]
            serving = {port["containerPort"] for port in ports if port["name"].startswith("serve")}
            there["Service", f"{name}-serve-svc"] = serving
        there[kind, name] = parts
    return there


def dangling(objects: list[Manifest]) -> list[str]:
    """References to what is not there, mounts without a volume, volumes without a mount."""
    there, found = provided(objects), []
    for reference in (one for item in objects for one in references(item)):
        parts = there.get((reference.kind, reference.name))
        named = f"{reference.owner} {'/'.join(map(str, reference.where))}"
        if parts is None:
            found.append(f"{named}: there is no {reference.kind} {reference.name}")
        elif reference.part is not None and reference.part not in parts:
            found.append(f"{named}: {reference.kind} {reference.name} has no {reference.part!r}, only {sorted(parts)}")
    for template in pod_templates(objects):
        volumes = {one["name"] for one in template.spec.get("volumes", [])} | claims_of(objects, template.owner)
        mounts = {one["name"] for each in containers(template.spec) for one in each.get("volumeMounts", [])}
        if " head" in template.owner:
            mounts |= autoscaler_mounts(objects)
        found += [f"{template.owner}: mount of {name}, which is no volume" for name in sorted(mounts - volumes)]
        found += [f"{template.owner}: nobody mounts the volume {name}" for name in sorted(volumes - mounts)]
    return found


def claims_of(objects: list[Manifest], owner: str) -> set[str]:
    """Volumes that a StatefulSet makes itself."""
    sets = [one for one in of_kind(objects, "StatefulSet") if owner == f"StatefulSet {one['metadata']['name']}"]
    return {claim["metadata"]["name"] for one in sets for claim in one["spec"].get("volumeClaimTemplates", [])}


def autoscaler_mounts(objects: list[Manifest]) -> set[str]:
    options = of_kind(objects, "RayService")[0]["spec"]["rayClusterConfig"]["autoscalerOptions"]
    return {one["name"] for one in options["volumeMounts"]}
