"""All of it together: API server, head with autoscaler, reconciler, and the application on top."""

import json
import os
import secrets
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.kubernetes.api_server import ApiServer, issue_certificate
from tests.integration.kubernetes.deviations import Places, applied, of_manifest
from tests.integration.kubernetes.kubelet import Kubelet
from tests.integration.kubernetes.objects import ray_cluster
from tests.integration.kubernetes.reconciler import Reconciler, runs
from tests.integration.kubernetes.store import Store
from tests.k8s.kustomize import ROOT, Manifest

__all__ = ["Loop", "playing"]

CLUSTER_SUFFIX = "loop1"
CALL_S = 60.0
POLL_S = 0.5


@dataclass(frozen=True)
class Loop:
    """A running cluster. Tests wait with `until`, which looks after the parts meanwhile."""

    store: Store
    server: ApiServer
    kubelet: Kubelet
    reconciler: Reconciler
    places: Places
    token: str
    head: str  # name of the head's pod

    def deploy(self, document: Manifest) -> None:
        """As the operator does with serveConfigV2: to the head's dashboard."""
        self._call("PUT", document)

    def replicas(self) -> dict[str, list[str]]:
        """By deployment, the pods in which its replicas run: one name for each replica, sorted."""
        application = self._application()
        if application is None:
            return {}
        return {
            name: sorted(self.kubelet.pod_of(one["pid"]) for one in deployment["replicas"] if one["state"] == "RUNNING")
            for name, deployment in application["deployments"].items()
        }

    def ready(self) -> bool:
        """Whether the application runs. AssertionError when it cannot."""
        application = self._application()
        if application is None:
            return False
        assert application["status"] not in ("DEPLOY_FAILED", "UNHEALTHY"), application["message"]
        return bool(application["status"] == "RUNNING")

    def pods(self, group: str) -> list[str]:
        """Names of its pods that run."""
        found = [one for one in self.store.pods().values() if one["metadata"]["labels"]["ray.io/group"] == group]
        return sorted(one["metadata"]["name"] for one in found if runs(one))

    def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait for it. AssertionError when it takes too long, or when one of the stand-ins cannot go on."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s\n{self._report()}"
            time.sleep(POLL_S)

    def check(self) -> None:
        """Everything still runs, and nothing was asked of the API server that it does not know."""
        assert self.reconciler.error is None, f"the reconciler has ended: {self.reconciler.error!r}"
        assert not self.kubelet.ended(self.head), "the head has ended"
        problem = self.kubelet.sidecar_problem(self.head)
        hint = "`ray kuberay-autoscaler` is a private command of Ray's, which a newer Ray may change"
        assert problem is None, f"{hint}: {problem}"
        assert self.server.refused == []

    def _report(self) -> str:
        """What is needed to see why something did not happen."""
        pods = {name: one["status"]["phase"] for name, one in self.store.pods().items()}
        return f"pods: {pods}\nchanges: {self.store.changes}\nServe: {self._application()}\n{self.kubelet.logs()}"

    def _application(self) -> Any:
        applications = self._call("GET")["applications"]
        return next(iter(applications.values()), None)

    def _call(self, method: str, document: Manifest | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.places.dashboard_port}/api/serve/applications/",
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=CALL_S) as reply:  # noqa: S310  # http, to this machine
            content = reply.read()
        return json.loads(content) if content else None


@contextmanager
def playing(service: Manifest, places: Places, folder: Path) -> Iterator[Loop]:
    """The RayService on this machine, without its application. All of it ends with the context, whatever happens.

    `folder` gets logs and certificates; its path must be short, for Ray puts sockets below it.
    """
    manifest = applied(service, of_manifest(service, places))
    store = Store(ray_cluster(manifest, CLUSTER_SUFFIX))
    certificate, key = issue_certificate(folder)
    token = secrets.token_hex(32)
    given = {"outrider-ray-token": {"auth_token": token}, "outrider-internal-token": {"token": secrets.token_hex(32)}}
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer(store, certificate, key))
        kubelet = Kubelet(folder, _environment(server, certificate, key), given)
        stack.callback(kubelet.kill_all)
        reconciler = Reconciler(store, kubelet)
        head = reconciler.start_head()
        stack.enter_context(reconciler)
        yield Loop(store, server, kubelet, reconciler, places, token, head)


def _environment(server: ApiServer, certificate: Path, key: Path) -> dict[str, str]:
    """What every container has: the test's environment without what is Ray's or ours, and the way to the API server.

    A certificate takes the place of the service account's token, whose path in a pod is fixed.
    """
    ours = ("RAY_", "OUTRIDER_", "KUBE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    bin_folder = str(Path(sys.executable).parent)
    return {
        **kept,
        "PATH": os.pathsep.join([bin_folder, kept.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "client"), kept.get("PYTHONPATH", "")]),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port),
        "RAY_KUBERAY_CA_CERT_PATH": str(certificate),
        "RAY_KUBERAY_CLIENT_CERT_PATH": str(certificate),
        "RAY_KUBERAY_CLIENT_KEY_PATH": str(key),
    }
