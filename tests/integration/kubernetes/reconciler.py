"""A stand-in for the part of KubeRay's operator that makes pods come and go.

Its rules, as of KubeRay 1.7 with the autoscaler on: a pod whose Ray has ended is deleted, and replaced a round later;
pods named in workersToDelete are deleted; missing pods are made; **no other pod is ever deleted**, for only the
autoscaler knows which one is idle. workersToDelete is the autoscaler's to clear.
"""

import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol, Self

from tests.integration.kubernetes.kubelet import PodError
from tests.integration.kubernetes.objects import head_pod, worker_pod
from tests.integration.kubernetes.store import Store
from tests.k8s.kustomize import Manifest

__all__ = ["Pods", "Reconciler", "runs"]

PERIOD_S = 0.2
FAILED_STARTS = 3  # in a row; on a busy machine Ray gives up on its own agents after 15 s


class Pods(Protocol):
    """Of the kubelet."""

    def start(self, pod: Manifest) -> None: ...

    def ended(self, name: str) -> bool: ...

    def stop(self, pod: Manifest) -> None: ...

    def kill(self, name: str) -> None: ...


def runs(pod: Manifest) -> bool:
    """As the autoscaler sees it."""
    statuses = pod["status"].get("containerStatuses", [])
    return "deletionTimestamp" not in pod["metadata"] and any("running" in one["state"] for one in statuses)


class Reconciler:
    """One round after the other while the context is open. Pods start one at a time: two raylets that start on one
    machine at once run into each other's deadlines. They end in their own time, which holds up nobody."""

    def __init__(self, store: Store, pods: Pods) -> None:
        self._store, self._pods = store, pods
        self._over = threading.Event()
        self._ends = ThreadPoolExecutor(thread_name_prefix="pod-end")
        self._ending: list[Future[None]] = []
        self._suffixes = (f"{number:05d}" for number in itertools.count(1))
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._ends.shutdown()

    def join(self, timeout_s: float) -> None:
        """Until it has ended by itself, which it does on an error only."""
        self._thread.join(timeout_s)

    def settle(self) -> None:
        """Until every pod whose end has begun is gone."""
        wait(self._ending)

    def start_head(self) -> str:
        """Its name. Returns when it runs, and belongs before the rounds. Raises `PodError` after some attempts."""
        pod = head_pod(self._store.cluster())
        while not self._start(pod):
            pass
        return str(pod["metadata"]["name"])

    def round(self) -> None:
        """Bring the pods of every group to what the RayCluster says."""
        cluster = self._store.cluster()
        for group in cluster["spec"]["workerGroupSpecs"]:
            present = {
                name: pod
                for name, pod in self._store.pods().items()
                if pod["metadata"]["labels"]["ray.io/group"] == group["groupName"]
                and "deletionTimestamp" not in pod["metadata"]
            }
            ended = [name for name in present if self._pods.ended(name)]
            for name in ended:
                self._bury(present[name])
            if ended:  # the others come in the next round
                continue
            for name in group["scaleStrategy"].get("workersToDelete", []):
                if name in present:
                    self._delete(present.pop(name))
            wanted = min(max(group["replicas"], group["minReplicas"]), group["maxReplicas"]) * group["numOfHosts"]
            for _ in range(wanted - len(present)):
                self._start(worker_pod(cluster, group, next(self._suffixes)))

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self.round()
                self._over.wait(PERIOD_S)
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.error = error

    def _start(self, pod: Manifest) -> bool:
        """Whether it runs now. One that does not come up is forgotten, but only so often."""
        self._store.put_pod(pod)
        try:
            self._pods.start(pod)
        except PodError:
            self._store.remove_pod(pod["metadata"]["name"])
            self._failed += 1
            if self._failed >= FAILED_STARTS:
                raise
            return False
        self._failed = 0
        self._store.put_pod(_with_state(pod, "Running", {"running": {}}))
        return True

    def _bury(self, pod: Manifest) -> None:
        """Its Ray has ended by itself; nothing starts in it again."""
        name = pod["metadata"]["name"]
        self._store.put_pod(_with_state(pod, "Failed", {"terminated": {}}))
        self._pods.kill(name)
        self._store.remove_pod(name)

    def _delete(self, pod: Manifest) -> None:
        """Nobody counts on the pod any more from the moment when its end begins."""
        metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self._store.put_pod({**pod, "metadata": metadata})
        self._ending.append(self._ends.submit(self._end, pod))

    def _end(self, pod: Manifest) -> None:
        try:
            self._pods.stop(pod)
            self._store.remove_pod(pod["metadata"]["name"])
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.error = error


def _with_state(pod: Manifest, phase: str, state: dict[str, object]) -> Manifest:
    name = pod["spec"]["containers"][0]["name"]
    status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [{"name": name, "state": state}]}
    return {**pod, "status": status}
