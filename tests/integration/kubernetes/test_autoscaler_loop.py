"""overlays/kind-cpu with Ray's own autoscaler: pods come for the application, follow its load, and are replaced."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faults.processes import slowed, titled
from cluster.local import free_port
from cluster.security.api_keys import hash_of, new_key
from cluster.security.key_file import KeyEntry, KeyFile, write_keys
from tests.integration.cluster.steady_load import SteadyLoad, steady_load
from tests.integration.kubernetes.deviations import Places, applied, of_serve_config
from tests.integration.kubernetes.loop import Loop, playing
from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import serve_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GROUPS = {"Gateway": "ingress", "DraftProposer": "draft", "TargetVerifier": "verify"}
SLOW = 0.15  # share of the time in which a slow verifier runs
STEP_S = 180.0  # for each step, which takes seconds on a quiet machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path."""
    made = Path(tempfile.mkdtemp(prefix="outrider-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def api_key() -> str:
    return new_key()


@pytest.fixture
def places(folder: Path, api_key: str, tiny_target: Path, tiny_draft: Path) -> Places:
    write_keys(folder / "keys.yaml", KeyFile(keys={"tests": KeyEntry(sha256=hash_of(api_key))}))
    ports = free_port(), free_port(), free_port()
    return Places(tiny_target, tiny_draft, folder / "keys.yaml", folder / "ray", *ports)


@pytest.fixture
def loop(service: Manifest, places: Places, folder: Path) -> Iterator[Loop]:
    with playing(service, places, folder) as running:
        yield running


def test_pods_follow_the_application(loop: Loop, service: Manifest, places: Places, api_key: str) -> None:
    loop.deploy(applied(serve_config(service), of_serve_config(service, places)))
    loop.until(lambda: loop.ready() and placed(loop) == (1, 1, 1), STEP_S)
    assert {name: replicas_asked(loop, name) for name in GROUPS.values()} == {name: [1] for name in GROUPS.values()}

    address = f"127.0.0.1:{places.grpc_port}"
    with steady_load(address, workers=1, pause_s=2.0, api_key=api_key) as always:
        grows_with_load(loop, address, api_key)
        victim = kill_verifier(loop)  # at once, for both take their time
        gone = shrinks_when_idle(loop)
        comes_back(loop, victim)
        answers_go_on(loop, always)
    loop.until(lambda: gone not in loop.store.pods(), STEP_S)  # it has ended in its own time
    loop.check()


def grows_with_load(loop: Loop, address: str, api_key: str) -> None:
    """More sessions than one drafter is meant to carry: our policy asks Serve, Serve asks Ray, Ray asks KubeRay.

    The verifier is slow, as with a large model: requests last, and leave the cores to the pod that starts.
    """
    (verifier,) = titled("ServeReplica:outrider:TargetVerifier")
    with steady_load(address, workers=2, api_key=api_key), slowed(verifier, SLOW):
        loop.until(lambda: placed(loop) == (1, 2, 1), STEP_S)
    assert replicas_asked(loop, "draft") == [1, 2]


def kill_verifier(loop: Loop) -> str:
    """The verifier's pod dies without a word; its name."""
    (victim,) = loop.pods("verify")
    (raylet,) = [one for one in loop.kubelet.processes(victim) if one.name() == "raylet"]
    raylet.kill()
    return victim


def shrinks_when_idle(loop: Loop) -> str:
    """The pod that loses its drafter is the one that the autoscaler names, and the one that goes; its name."""
    before = set(loop.pods("draft"))
    loop.until(lambda: len(loop.pods("draft")) == 1 and loop.replicas()["DraftProposer"] == loop.pods("draft"), STEP_S)
    (left,) = loop.pods("draft")
    (gone,) = before - {left}
    assert deleted(loop, "draft") == [gone]
    assert replicas_asked(loop, "draft") == [1, 2, 1]
    return gone


def comes_back(loop: Loop, victim: str) -> None:
    loop.until(lambda: loop.pods("verify") != [victim] and placed(loop) == (1, 1, 1), STEP_S)
    assert replicas_asked(loop, "verify") == [1], "the operator replaced it, nobody asked for another"
    assert deleted(loop, "ingress") == deleted(loop, "verify") == []


def answers_go_on(loop: Loop, load: SteadyLoad) -> None:
    done = len(load.answers)
    loop.until(lambda: bool(load.errors) or len(load.answers) >= done + 2, STEP_S)
    assert load.errors == []


def placed(loop: Loop) -> tuple[int, ...] | None:
    """Replicas of each pool when every pod carries one, of those that the pod's group is for; else None."""
    pods = {name: loop.pods(group) for name, group in GROUPS.items()}
    return tuple(map(len, pods.values())) if loop.replicas() == pods else None


def replicas_asked(loop: Loop, group: str) -> list[int]:
    """What the autoscaler wrote into `replicas` of a group, in order."""
    return [one.value for one in loop.store.changes if (one.group, one.field) == (group, "replicas")]


def deleted(loop: Loop, group: str) -> list[str]:
    """The pods of a group that the autoscaler has named in workersToDelete."""
    strategies = [one.value for one in loop.store.changes if (one.group, one.field) == (group, "scaleStrategy")]
    return [name for one in strategies for name in one.get("workersToDelete", [])]
