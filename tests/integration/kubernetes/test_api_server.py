"""The API server that plays: what it takes, and that it takes nothing else."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kubernetes.api_server import JSON_PATCH, ApiServer, issue_certificate
from tests.integration.kubernetes.objects import worker_pod
from tests.integration.kubernetes.store import Change, Store

CLUSTERS = "/apis/ray.io/v1/namespaces/outrider/rayclusters"
CLUSTER = f"{CLUSTERS}/outrider-test"
PODS = "/api/v1/namespaces/outrider/pods"
DRAFT = "/spec/workerGroupSpecs/1"


@dataclass(frozen=True)
class Caller:
    """With the certificate, unless told otherwise."""

    server: ApiServer
    certificate: Path
    key: Path

    def __call__(self, method: str, path: str, body: Any = None, kind: str = JSON_PATCH) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=self.certificate)
        context.load_cert_chain(self.certificate, self.key)
        return self.call(context, method, path, body, kind)

    def call(self, context: ssl.SSLContext, method: str, path: str, body: Any, kind: str) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.server.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=60.0, context=context) as reply:  # noqa: S310  # ours
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return issue_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def call(store: Store, certificate: tuple[Path, Path]) -> Iterator[Caller]:
    with ApiServer(store, *certificate) as server:
        yield Caller(server, *certificate)


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def test_an_autoscaler_finds_what_it_looks_for(call: Caller, store: Store) -> None:
    pod = worker_pod(store.cluster(), store.group("draft"), "a")
    store.put_pod(pod)
    name = pod["metadata"]["name"]
    assert call("GET", CLUSTER) == (200, store.cluster())
    assert call("GET", f"{PODS}/{name}") == (200, store.pods()[name])
    newest = f"resourceVersion={store.version}&resourceVersionMatch=NotOlderThan"
    code, pods = call("GET", f"{PODS}?labelSelector=ray.io/cluster%3Doutrider-test&{newest}")
    assert (code, pods["items"], pods["metadata"]) == (200, [store.pods()[name]], {"resourceVersion": store.version})
    assert call.server.refused == []


def test_a_patch_changes_the_cluster_and_is_remembered(call: Caller, store: Store) -> None:
    before = int(store.version)
    gone = {"workersToDelete": ["x"]}
    code, cluster = call("PATCH", CLUSTER, [replace(f"{DRAFT}/replicas", 2), replace(f"{DRAFT}/scaleStrategy", gone)])
    assert (code, cluster) == (200, store.cluster())
    assert (store.group("draft")["replicas"], store.group("draft")["scaleStrategy"]) == (2, gone)
    assert store.group("verify")["replicas"] == 0
    assert int(cluster["metadata"]["resourceVersion"]) > before
    assert store.changes == [Change("draft", "replicas", 2), Change("draft", "scaleStrategy", gone)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "not an empty one"),
        ({"spec": {}}, "a list of operations"),
        (["x"], "only replace"),
        ([{"op": "add", "path": f"{DRAFT}/replicas", "value": 2}], "only replace"),
        ([{"op": "replace", "path": f"{DRAFT}/replicas"}], "only replace"),
        ([replace(f"{DRAFT}/minReplicas", 0)], "nothing else"),
        ([replace("/spec/workerGroupSpecs/-1/replicas", 1)], "nothing else"),
        ([replace("/spec/workerGroupSpecs/3/replicas", 1)], "there are 3 worker groups"),
        ([replace(f"{DRAFT}/replicas", -1)], "does not take -1"),
        ([replace(f"{DRAFT}/replicas", "2")], "does not take '2'"),
        ([replace(f"{DRAFT}/replicas", True)], "does not take True"),
        ([replace(f"{DRAFT}/scaleStrategy", ["x"])], "does not take"),
        ([replace(f"{DRAFT}/scaleStrategy", {"workersToDelete": "x"})], "does not take"),
        ([replace(f"{DRAFT}/scaleStrategy", {"workersToKeep": []})], "does not take"),
    ],
)
def test_a_bad_patch_is_refused_whole(call: Caller, store: Store, body: Any, reason: str) -> None:
    before = store.cluster()
    good = [replace(f"{DRAFT}/replicas", 2)] if isinstance(body, list) and body else []
    code, status = call("PATCH", CLUSTER, good + body if isinstance(body, list) else body)
    assert code == 422
    assert reason in status["message"]
    assert call.server.refused == [status["message"]]
    assert (store.cluster(), store.changes) == (before, [])


def test_nothing_is_replaced_that_is_not_there(store: Store, certificate: tuple[Path, Path]) -> None:
    """The autoscaler relies on the operator, which writes an empty scaleStrategy."""
    cluster = store.cluster()
    del cluster["spec"]["workerGroupSpecs"][1]["scaleStrategy"]
    with ApiServer(Store(cluster), *certificate) as server:
        body = [replace(f"{DRAFT}/scaleStrategy", {"workersToDelete": []})]
        code, status = Caller(server, *certificate)("PATCH", CLUSTER, body)
    assert code == 422
    assert "nothing is there" in status["message"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/version", 404),
        ("GET", f"{CLUSTERS}/another", 404),
        ("GET", f"{CLUSTER}?watch=true", 400),
        ("GET", CLUSTER.replace("/v1/", "/v1alpha1/"), 404),
        ("GET", "/api/v1/namespaces/default/pods?labelSelector=ray.io/cluster%3Doutrider-test", 404),
        ("GET", PODS, 400),
        ("GET", f"{PODS}?labelSelector=ray.io/cluster%3Danother", 400),
        ("GET", f"{PODS}?labelSelector=ray.io/cluster%3Doutrider-test&limit=5", 400),
        ("GET", f"{PODS}/missing", 404),
        ("DELETE", f"{PODS}/some", 404),  # KubeRay's role does not allow it either
        ("DELETE", CLUSTER, 404),
        ("PUT", CLUSTER, 404),
        ("POST", PODS, 404),
    ],
)
def test_whatever_else_is_asked_is_refused_and_told(call: Caller, method: str, path: str, code: int) -> None:
    answered, status = call(method, path, {} if method in ("PUT", "POST") else None)
    assert (answered, status["kind"]) == (code, "Status")
    assert len(call.server.refused) == 1


def test_only_json_patches_are_taken(call: Caller, store: Store) -> None:
    code, _ = call("PATCH", CLUSTER, {"spec": {"suspend": True}}, "application/merge-patch+json")
    assert (code, call.server.refused) == (415, ["PATCH of the RayCluster as application/merge-patch+json"])
    assert "suspend" not in store.cluster()["spec"]


def test_strangers_are_not_let_in(call: Caller, tmp_path: Path) -> None:
    nobody = ssl.create_default_context(cafile=call.certificate)
    stranger = ssl.create_default_context(cafile=call.certificate)
    stranger.load_cert_chain(*issue_certificate(tmp_path))
    for context in (nobody, stranger):
        with pytest.raises((urllib.error.URLError, OSError)):
            call.call(context, "GET", CLUSTER, None, JSON_PATCH)
    assert call("GET", CLUSTER)[0] == 200
    assert call.server.refused == []
