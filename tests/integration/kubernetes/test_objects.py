"""What the playing operator makes of the manifest, and where the loop differs from it."""

from pathlib import Path

import yaml

from cluster.config.loader import load_config
from tests.integration.kubernetes.deviations import Deviation, Places, applied, of_manifest, of_serve_config
from tests.integration.kubernetes.objects import head_pod, ray_cluster, worker_pod
from tests.integration.kubernetes.store import Store
from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import env, groups, serve_config


def test_the_head_starts_ray_and_the_autoscaler_beside_it(store: Store, paper_places: Places) -> None:
    pod = head_pod(store.cluster())
    ray, autoscaler = pod["spec"]["containers"]
    assert ray["args"][:3] == ["ray", "start", "--block"]
    port = next(word for word in ray["args"] if word.startswith("--port=")).removeprefix("--port=")
    assert {"--head", "--no-monitor", "--num-cpus=0", f"--dashboard-port={paper_places.dashboard_port}"} <= set(
        ray["args"]
    )
    assert autoscaler["args"] == [
        "ray",
        "kuberay-autoscaler",
        "--cluster-name=outrider-test",
        "--cluster-namespace=outrider",
        f"--gcs-address=127.0.0.1:{port}",
    ]
    assert env(ray)["RAY_NODE_TYPE_NAME"] == pod["metadata"]["labels"]["ray.io/group"] == "headgroup"
    assert env(autoscaler)["RAY_HEAD_POD_NAME"] == env(ray)["RAY_CLOUD_INSTANCE_ID"] == pod["metadata"]["name"]
    assert "RAY_CLOUD_INSTANCE_ID" not in env(autoscaler)


def test_a_worker_is_what_its_group_says(store: Store) -> None:
    pod = worker_pod(store.cluster(), store.group("verify"), "x1")
    (ray,) = pod["spec"]["containers"]
    assert pod["metadata"]["name"] == env(ray)["RAY_CLOUD_INSTANCE_ID"] == "outrider-test-verify-worker-x1"
    wanted = {
        "--labels=outrider/role=verify",
        "--num-cpus=1",
        f"--memory={2 * 2**30}",
        "--object-store-memory=200000000",
    }
    assert wanted <= set(ray["args"])
    assert not any(word.startswith(("--head", "--num-gpus")) for word in ray["args"])
    labels = pod["metadata"]["labels"]
    assert (labels["ray.io/cluster"], labels["ray.io/group"], labels["ray.io/node-type"]) == (
        "outrider-test",
        "verify",
        "worker",
    )
    assert labels["app.kubernetes.io/component"] == labels["outrider/role"] == "verify"
    assert env(ray)["RAY_AUTH_MODE"] == "token"
    assert pod["spec"]["restartPolicy"] == "Never"


def test_the_gpus_of_a_group_are_rays(store: Store) -> None:
    group = store.group("verify")
    group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4"
    assert "--num-gpus=4" in worker_pod(store.cluster(), group, "x1")["spec"]["containers"][0]["args"]


def test_the_cluster_has_what_server_and_operator_fill_in(service: Manifest) -> None:
    for name, group in zip(groups(service), ray_cluster(service, "x")["spec"]["workerGroupSpecs"], strict=True):
        given = groups(service)[name]
        assert (group["replicas"], group["numOfHosts"], group["scaleStrategy"]) == (0, 1, {})
        assert (group["minReplicas"], group["maxReplicas"]) == (given["minReplicas"], given["maxReplicas"])


def assert_each_differs(document: Manifest, deviations: list[Deviation]) -> None:
    for one in deviations:
        present = document
        for key in one.where[:-1]:
            present = present[key]
        assert not isinstance(present, dict) or present.get(one.where[-1]) != one.value, one
        assert one.why
    assert len({one.where for one in deviations}) == len(deviations)


def test_each_deviation_is_one(service: Manifest, paper_places: Places) -> None:
    assert_each_differs(service, list(of_manifest(service, paper_places)))
    assert_each_differs(serve_config(service), list(of_serve_config(service, paper_places)))


def test_the_serve_config_is_still_one_that_we_take(service: Manifest, paper_places: Places, tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(applied(serve_config(service), of_serve_config(service, paper_places))))
    assert load_config(path).args.draft.autoscaling.max_replicas == 2
