"""What KubeRay's operator makes of a RayService: the RayCluster, the head's pod and the workers' pods.

Only what Ray and the autoscaler see of them: commands, environment, labels. Init containers, volumes, probes, security
contexts and Services are left as the manifest has them, or left out; nothing here plays them.
"""

import copy
import math
from typing import Any

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import cluster as cluster_config
from tests.k8s.manifests import quantity

__all__ = ["HEAD_GROUP", "head_pod", "ray_cluster", "worker_pod"]

HEAD_GROUP = "headgroup"  # as operator and autoscaler call the head's group
DEFAULTS = {"replicas": 0, "minReplicas": 0, "maxReplicas": 2**31 - 1, "numOfHosts": 1}  # of the CRD


def ray_cluster(service: Manifest, suffix: str) -> Manifest:
    """The RayCluster of a RayService, with what API server and operator fill in."""
    metadata = service["metadata"]
    spec = copy.deepcopy(cluster_config(service))
    assert spec["enableInTreeAutoscaling"], "without it there is no autoscaler"
    # Go writes the empty struct out, and the autoscaler replaces it.
    spec["workerGroupSpecs"] = [{**DEFAULTS, "scaleStrategy": {}, **one} for one in spec["workerGroupSpecs"]]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": f"{metadata['name']}-{suffix}", "namespace": metadata["namespace"]},
        "spec": spec,
    }


def head_pod(cluster: Manifest) -> Manifest:
    """With the autoscaler as its second container, started by the command that KubeRay uses."""
    spec, name = cluster["spec"], f"{cluster['metadata']['name']}-head"
    pod = _pod(cluster, spec["headGroupSpec"], HEAD_GROUP, name)
    options, (ray, *others) = spec["autoscalerOptions"], pod["spec"]["containers"]
    assert options["version"] == "v2", "the environment below is the second autoscaler's"
    ray["args"] = _ray_start(spec["headGroupSpec"], ["--head", "--no-monitor"])
    ray["env"].append({"name": "RAY_enable_autoscaler_v2", "value": "1"})
    place = [f"--cluster-name={cluster['metadata']['name']}", f"--cluster-namespace={cluster['metadata']['namespace']}"]
    autoscaler = {
        "name": "autoscaler",
        # KubeRay leaves the address out, for there it is always port 6379 of the pod.
        "args": ["ray", "kuberay-autoscaler", *place, f"--gcs-address={_gcs_address(cluster)}"],
        "env": [
            *_auth(spec),
            {"name": "KUBERAY_CRD_VER", "value": "v1"},
            {"name": "RAY_HEAD_POD_NAME", "value": name},
            *options.get("env", []),
        ],
    }
    pod["spec"]["containers"] = [ray, autoscaler, *others]
    return pod


def worker_pod(cluster: Manifest, group: Manifest, suffix: str) -> Manifest:
    """`suffix` makes its name unique."""
    name = f"{cluster['metadata']['name']}-{group['groupName']}-worker-{suffix}"
    pod = _pod(cluster, group, group["groupName"], name)
    pod["spec"]["containers"][0]["args"] = _ray_start(group, [f"--address={_gcs_address(cluster)}"])
    return pod


def _pod(cluster: Manifest, group: Manifest, group_name: str, name: str) -> Manifest:
    template = copy.deepcopy(group["template"])
    ray = template["spec"]["containers"][0]
    ray["env"] = [
        *ray.get("env", []),
        *_auth(cluster["spec"]),
        # By these two the autoscaler recognises a pod in what Ray tells of its nodes.
        {"name": "RAY_CLOUD_INSTANCE_ID", "value": name},
        {"name": "RAY_NODE_TYPE_NAME", "value": group_name},
    ]
    labels = {
        **template["metadata"]["labels"],
        **group.get("labels", {}),
        "ray.io/cluster": cluster["metadata"]["name"],
        "ray.io/group": group_name,
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head" if group_name == HEAD_GROUP else "worker",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": cluster["metadata"]["namespace"], "labels": labels},
        "spec": {**template["spec"], "restartPolicy": "Never"},  # which version v2 brings with it
        "status": {"phase": "Pending"},
    }


def _ray_start(group: Manifest, role: list[str]) -> list[str]:
    """`ray start` of a group: its rayStartParams, and its resources where these say nothing of them."""
    resources = group["template"]["spec"]["containers"][0]["resources"]
    amounts = {**resources.get("requests", {}), **resources.get("limits", {})}
    params: dict[str, Any] = {"num-cpus": math.ceil(quantity(amounts["cpu"]))}
    params["memory"] = int(quantity(resources["limits"]["memory"]))
    if "nvidia.com/gpu" in amounts:
        params["num-gpus"] = amounts["nvidia.com/gpu"]
    params |= group["rayStartParams"]
    if group.get("labels"):
        params["labels"] = ",".join(f"{key}={value}" for key, value in group["labels"].items())
    return ["ray", "start", "--block", *role, *(f"--{key}={value}" for key, value in sorted(params.items()))]


def _gcs_address(cluster: Manifest) -> str:
    """All pods share this machine: Ray replaces the loopback address by the machine's own."""
    return f"127.0.0.1:{cluster['spec']['headGroupSpec']['rayStartParams']['port']}"


def _auth(spec: Manifest) -> list[Manifest]:
    options = spec["authOptions"]
    assert options["mode"] == "token", "this cluster is to run with Ray's token"
    secret = {"name": options["secretName"], "key": "auth_token"}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]
