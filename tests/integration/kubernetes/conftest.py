"""The RayService of overlays/kind-cpu, as the loop and the tests of its stand-ins take it."""

from pathlib import Path

import pytest

from cluster.local import free_port
from tests.integration.kubernetes.deviations import Places, applied, of_manifest
from tests.integration.kubernetes.objects import ray_cluster
from tests.integration.kubernetes.store import Store
from tests.k8s.kustomize import K8S, Manifest, build
from tests.k8s.manifests import ray_service


@pytest.fixture
def service() -> Manifest:
    return ray_service(build(K8S / "overlays/kind-cpu"))


@pytest.fixture
def paper_places() -> Places:
    """For tests in which nothing starts."""
    target, draft, keys, temp = (Path("/nowhere") / name for name in ("tiny", "tiny-draft", "keys.yaml", "temp"))
    return Places(target, draft, keys, temp, free_port(), free_port(), free_port())


@pytest.fixture
def store(service: Manifest, paper_places: Places) -> Store:
    """Its RayCluster, without pods."""
    return Store(ray_cluster(applied(service, of_manifest(service, paper_places)), "test"))
