"""The restricted profile of Kubernetes, and a little more: what a pod here may not have or must have."""

import re

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import PodTemplate, containers

__all__ = ["image_faults", "literal_secrets", "violations"]

VOLUMES = ("emptyDir", "persistentVolumeClaim", "secret", "configMap", "projected", "ephemeral")
SECRET_NAMES = re.compile(r"(TOKEN|PASSWORD|SECRET|API_?KEY|CREDENTIAL)", re.IGNORECASE)
TAG = re.compile(r"((?<!@sha256):\w[\w.-]*|@sha256:[0-9a-f]{64})$")


def violations(template: PodTemplate) -> list[str]:
    """Of one pod: its own settings and those of all its containers, the autoscaler's among them."""
    spec, found = template.spec, []
    found += [f"{key}: shares the node's" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", []):
        if not any(kind in volume for kind in VOLUMES):
            found.append(f"volume {volume['name']}: only {', '.join(VOLUMES)}")
    pod = spec.get("securityContext", {})
    if pod.get("runAsUser", 0) == 0 or not pod.get("runAsNonRoot"):
        found.append("securityContext: runAsNonRoot and a runAsUser above 0 are needed")
    if "serviceAccountName" not in spec:
        found.append("serviceAccountName: the namespace's default is shared with strangers")
    token = spec.get("automountServiceAccountToken")
    if token is not (template.labels["app.kubernetes.io/component"] == "head"):
        found.append("automountServiceAccountToken: true for the head, false for all others")
    for container in containers(spec):
        found += [f"{container['name']}: {fault}" for fault in container_faults(container)]
        if not {"requests", "limits"} <= set(container.get("resources", {})):
            found.append(f"{container['name']}: resources need requests and limits")
        found += _memory(container)
    return found


def container_faults(container: Manifest) -> list[str]:
    """Of one container."""
    context = container.get("securityContext", {})
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True}
    found = [f"securityContext.{key} must be {value}" for key, value in wanted.items() if context.get(key) is not value]
    if context.get("capabilities") != {"drop": ["ALL"]}:
        found.append("securityContext.capabilities must drop ALL and add none")
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.append("securityContext.seccompProfile must be RuntimeDefault")
    if context.get("privileged") or context.get("runAsUser") == 0 or "procMount" in context:
        found.append("securityContext: neither privileged, nor root, nor another procMount")
    if any("hostPort" in port for port in container.get("ports", [])):
        found.append("ports: no hostPort")
    return found


def literal_secrets(container: Manifest) -> list[str]:
    """Variables that look like secrets and stand there in the open."""
    named = [one for one in container.get("env", []) if SECRET_NAMES.search(one["name"])]
    return [one["name"] for one in named if "secretKeyRef" not in one.get("valueFrom", {})]


def image_faults(image: str) -> list[str]:
    """A tag or digest is needed, and `latest` is none."""
    if not TAG.search(image):
        return [f"{image}: needs a tag or a digest"]
    return [f"{image}: latest is another image every day"] if image.endswith(":latest") else []


def _memory(container: Manifest) -> list[str]:
    """A pod that may use more memory than it has asked for is the first to be killed."""
    resources = container.get("resources", {})
    asked, limit = (resources.get(one, {}).get("memory") for one in ("requests", "limits"))
    return [] if asked is not None and asked == limit else [f"{container['name']}: memory {asked} asked, {limit} limit"]
