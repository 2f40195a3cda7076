"""What the API server keeps: one RayCluster and its pods, and every change that came over the wire."""

import copy
import re
import threading
from dataclasses import dataclass
from typing import Any

from tests.k8s.kustomize import Manifest

__all__ = ["Change", "PatchError", "Store"]

# All that an autoscaler has to write. KubeRay's role would let it write more; whatever it tries beyond fails the test.
REPLICAS = re.compile(r"/spec/workerGroupSpecs/(\d+)/replicas")
STRATEGY = re.compile(r"/spec/workerGroupSpecs/(\d+)/scaleStrategy")


class PatchError(ValueError):
    """A JSON patch that is refused whole; the text says why."""


@dataclass(frozen=True)
class Change:
    """One accepted operation of a patch: of which group, which field, to what."""

    group: str
    field: str  # replicas or scaleStrategy
    value: Any


class Store:
    """Thread-safe. What it gives out are copies."""

    def __init__(self, cluster: Manifest) -> None:
        self._lock = threading.RLock()
        self._version = 1
        self._cluster = copy.deepcopy(cluster)
        self._pods: dict[str, Manifest] = {}
        self._changes: list[Change] = []
        self._stamp(self._cluster)

    @property
    def name(self) -> str:
        """Of the RayCluster."""
        return str(self._cluster["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self._cluster["metadata"]["namespace"])

    @property
    def version(self) -> str:
        """The newest resourceVersion."""
        with self._lock:
            return str(self._version)

    @property
    def changes(self) -> list[Change]:
        """All accepted operations, in their order."""
        with self._lock:
            return list(self._changes)

    def cluster(self) -> Manifest:
        with self._lock:
            return copy.deepcopy(self._cluster)

    def group(self, name: str) -> Manifest:
        """One worker group as it stands in the RayCluster now."""
        return next(one for one in self.cluster()["spec"]["workerGroupSpecs"] if one["groupName"] == name)

    def pods(self) -> dict[str, Manifest]:
        """By name, the oldest first."""
        with self._lock:
            return copy.deepcopy(self._pods)

    def put_pod(self, pod: Manifest) -> None:
        """A new one, or in the place of the one of that name."""
        with self._lock:
            self._stamp(pod)
            self._pods[pod["metadata"]["name"]] = copy.deepcopy(pod)

    def remove_pod(self, name: str) -> None:
        with self._lock:
            del self._pods[name]
            self._version += 1

    def patch_cluster(self, operations: object) -> Manifest:
        """RFC 6902, all or nothing; only `replace`, and only of what an autoscaler may change. The new RayCluster.

        Raises `PatchError`.
        """
        if not isinstance(operations, list) or not operations:
            raise PatchError("a JSON patch is a list of operations, and not an empty one")
        with self._lock:
            draft, changes = copy.deepcopy(self._cluster), []
            for one in operations:
                changes.append(_replace(draft["spec"]["workerGroupSpecs"], one))
            self._cluster = draft
            self._changes += changes
            self._stamp(self._cluster)
            return copy.deepcopy(draft)

    def _stamp(self, document: Manifest) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)


def _replace(groups: list[Manifest], operation: Any) -> Change:
    """Apply one operation to the worker groups."""
    if not isinstance(operation, dict) or set(operation) != {"op", "path", "value"} or operation["op"] != "replace":
        raise PatchError(f"only replace with path and value is known here, got {operation}")
    path, value = str(operation["path"]), operation["value"]
    for pattern, field, problem in ((REPLICAS, "replicas", _count), (STRATEGY, "scaleStrategy", _strategy)):
        found = pattern.fullmatch(path)
        if found is None:
            continue
        index = int(found[1])
        if index >= len(groups):
            raise PatchError(f"{path}: there are {len(groups)} worker groups")
        if field not in groups[index]:  # RFC 6902, 4.3: the target of replace must exist
            raise PatchError(f"{path}: nothing is there to replace")
        if not problem(value):
            raise PatchError(f"{path}: the CRD does not take {value!r}")
        groups[index][field] = value
        return Change(groups[index]["groupName"], field, copy.deepcopy(value))
    raise PatchError(f"{path}: an autoscaler changes replicas and scaleStrategy of worker groups, nothing else")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _strategy(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - {"workersToDelete"}:
        return False
    names = value.get("workersToDelete", [])
    return isinstance(names, list) and all(isinstance(name, str) for name in names)
