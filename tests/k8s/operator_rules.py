"""What KubeRay 1.7 refuses of a RayService beyond its schema, told again from its behaviour."""

import re
from typing import Any

from ray._private.label_utils import validate_node_label_syntax

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import cluster, containers, env

__all__ = ["ALPHA", "violations"]

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MAX_NAME = 47  # the operator appends a suffix, and then -serve-svc
ALPHA = ("networkPolicy", "tlsOptions", "historyServerOptions")  # switched off by default: refused as a whole
STRATEGIES = ("NewCluster", "NewClusterWithIncrementalUpgrade", "None")
OWNED = {  # by fields of the API: variables that may not be set besides
    "authOptions": ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
    "gcsFaultToleranceOptions": ("RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME"),
    "autoscalerOptions": ("RAY_enable_autoscaler_v2",),
}
RESOURCE_PARAMS = ("num-cpus", "num-gpus", "memory", "resources")


def violations(service: Manifest) -> list[str]:
    """Empty when the operator would take it."""
    name, config = service["metadata"]["name"], cluster(service)
    found = []
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        found.append(f"name {name!r}: at most {MAX_NAME} of a-z, 0-9 and -, a letter first")
    found += _upgrade(service["spec"], config)
    found += _options(config)
    found += _head(config["headGroupSpec"])
    names = [group.get("groupName") for group in config["workerGroupSpecs"]]
    if len(set(names)) != len(names):
        found.append(f"groupName: {names} repeat")
    everyone = {"head": config["headGroupSpec"], **{one["groupName"]: one for one in config["workerGroupSpecs"]}}
    for group_name, group in everyone.items():
        found += [f"{group_name}: {one}" for one in _group(group, config)]
    for one in config["workerGroupSpecs"]:
        found += [f"{one['groupName']}: {text}" for text in _worker(one)]
    return found


def _upgrade(spec: Manifest, config: Manifest) -> list[str]:
    strategy = spec.get("upgradeStrategy", {})
    kind, options = strategy.get("type", "NewCluster"), strategy.get("clusterUpgradeOptions")
    found = [] if kind in STRATEGIES else [f"upgradeStrategy.type {kind!r}: one of {STRATEGIES}"]
    if (kind == "NewClusterWithIncrementalUpgrade") != (options is not None):
        found.append("clusterUpgradeOptions: with NewClusterWithIncrementalUpgrade, and only with it")
    if options is not None:
        surge = options.get("maxSurgePercent", 100)
        if not options.get("gatewayClassName"):
            found.append("clusterUpgradeOptions.gatewayClassName is needed")
        if not 0 < options.get("stepSizePercent", 0) <= surge:
            found.append("clusterUpgradeOptions.stepSizePercent: above 0 and at most maxSurgePercent")
        if not 0 <= surge <= 100:
            found.append("clusterUpgradeOptions.maxSurgePercent: 0 to 100")
        if options.get("intervalSeconds", 0) <= 0:
            found.append("clusterUpgradeOptions.intervalSeconds: above 0")
        if not config.get("enableInTreeAutoscaling"):
            found.append("NewClusterWithIncrementalUpgrade needs enableInTreeAutoscaling")
    if spec.get("rayClusterDeletionDelaySeconds", 60) < 0:
        found.append("rayClusterDeletionDelaySeconds: 0 or more")
    return found


def _options(config: Manifest) -> list[str]:
    found = [f"{key}: an alpha gate, off by default" for key in ALPHA if key in config]
    if config.get("gcsFaultToleranceOptions", {}).get("backend") == "rocksdb":
        found.append("gcsFaultToleranceOptions.backend rocksdb: an alpha gate, off by default")
    auth = config.get("authOptions", {})
    if auth.get("mode") == "token" and _version(config) < (2, 52):
        found.append("authOptions.mode token needs rayVersion 2.52 or newer")
    if auth.get("enableK8sTokenAuth"):
        found.append("authOptions.enableK8sTokenAuth: not for a RayService")
    return found


def _head(head: Manifest) -> list[str]:
    found = []
    if head.get("headService", {}).get("metadata", {}).get("name"):
        found.append("headService.metadata.name may not be set")
    ports = {
        one.get("name"): one["containerPort"] for one in head["template"]["spec"]["containers"][0].get("ports", [])
    }
    if "serve" not in ports:
        found.append("head: the first container needs a port named serve")
    if not any(str(name).startswith("serve-") for name in ports):
        found.append("head: without a port named serve-… the serve Service has no gRPC")
    return found


def _group(group: Manifest, config: Manifest) -> list[str]:
    params: dict[str, Any] = group.get("rayStartParams", {})
    found = [
        f"rayStartParams.{key}: {value!r} is no string" for key, value in params.items() if not isinstance(value, str)
    ]
    if "labels" in params:
        found.append("rayStartParams.labels: use labels of the group")
    if "resources" in group:
        found += [f"resources and rayStartParams.{key} exclude each other" for key in RESOURCE_PARAMS if key in params]
    try:
        validate_node_label_syntax(group.get("labels", {}))
    except ValueError as error:
        found.append(f"labels: {error}")
    metadata, spec = group["template"].get("metadata", {}), group["template"]["spec"]
    if "ray.io/ft-enabled" in metadata.get("annotations", {}):
        found.append("annotation ray.io/ft-enabled: use gcsFaultToleranceOptions")
    v2 = config.get("autoscalerOptions", {}).get("version") == "v2"
    if v2 and spec.get("restartPolicy", "Never") != "Never":
        found.append("restartPolicy: the autoscaler v2 needs Never, which the operator sets")
    if not v2:
        found += [
            f"{key} needs autoscalerOptions.version v2" for key in ("idleTimeoutSeconds", "priority") if key in group
        ]
    if "priority" in group and _version(config) < (2, 56):
        found.append("priority needs rayVersion 2.56 or newer")
    for container in containers(spec):
        for field, variables in OWNED.items():
            set_besides = [one for one in variables if one in env(container)]
            if field in config and set_besides:
                found.append(f"{container['name']}: {set_besides} may not be set together with {field}")
    return found


def _worker(group: Manifest) -> list[str]:
    low, high = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    found = [] if 0 <= low <= high else [f"minReplicas {low} to maxReplicas {high} is no range"]
    if "replicas" in group:
        found.append("replicas: the autoscaler's own; in a file it fights with it")
    if group.get("numOfHosts", 1) < 1:
        found.append("numOfHosts: 1 or more")
    if not NAME.fullmatch(group["groupName"]):
        found.append(f"groupName {group['groupName']!r}: a-z, 0-9 and -, a letter first")
    return found


def _version(config: Manifest) -> tuple[int, ...]:
    text = str(config.get("rayVersion", "0"))
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
