"""The kubelet that plays, with shells in the place of Ray."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.cluster.processes import wait_until
from tests.integration.kubernetes.kubelet import READY, Kubelet, PodError
from tests.k8s.kustomize import ROOT, Manifest

SECRETS = {"locker": {"token": "hush"}}


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(tmp_path, {"PATH": "/usr/bin:/bin", "GIVEN": "by the node"}, SECRETS)
    yield kubelet
    kubelet.kill_all()


def pod(*scripts: str, grace_s: int = 30, **ray: Any) -> Manifest:
    """A pod of shells."""
    containers = [{"name": f"c{i}", "args": ["bash", "-c", script]} for i, script in enumerate(scripts)]
    containers[0] |= ray
    return {"metadata": {"name": "one"}, "spec": {"containers": containers, "terminationGracePeriodSeconds": grace_s}}


RUNS = f"echo '{READY}'; sleep 600"


def test_a_pod_runs_when_ray_says_so(kubelet: Kubelet) -> None:
    kubelet.start(pod(RUNS, "sleep 600"))
    assert not kubelet.ended("one")
    assert kubelet.sidecar_problem("one") is None
    processes = kubelet.processes("one")
    assert len(processes) == 2
    assert {kubelet.pod_of(process.pid) for process in processes} == {"one"}
    assert kubelet.pod_of(os.getpid()) == kubelet.pod_of(2**22) == ""


def test_variables_come_from_the_node_the_pod_and_secrets(kubelet: Kubelet, tmp_path: Path) -> None:
    secret = {"valueFrom": {"secretKeyRef": {"name": "locker", "key": "token"}}}
    env = [{"name": "OWN", "value": "old"}, {"name": "OWN", "value": "new"}, {"name": "SECRET", **secret}]
    kubelet.start(pod(f"echo $GIVEN, $OWN, $SECRET; {RUNS}", env=env))
    assert (tmp_path / "one.c0.log").read_text().splitlines()[0] == "by the node, new, hush"


def test_a_pod_that_does_not_come_up_tells_why_and_leaves_nothing(kubelet: Kubelet) -> None:
    with pytest.raises(PodError, match="no ports left"):
        kubelet.start(pod("echo no ports left; exit 1"))
    assert kubelet.processes("one") == []


def test_a_sidecar_that_ends_is_a_problem(kubelet: Kubelet) -> None:
    kubelet.start(pod(RUNS, "echo No such command; exit 2"))
    wait_until(lambda: kubelet.sidecar_problem("one") is not None, 60.0)
    assert "ended with 2: No such command" in str(kubelet.sidecar_problem("one"))
    assert not kubelet.ended("one")


def test_the_end_of_ray_is_the_end_of_the_pod(kubelet: Kubelet) -> None:
    kubelet.start(pod(f"echo '{READY}'; exit 1", "sleep 600"))
    wait_until(lambda: kubelet.ended("one"), 60.0)


def test_a_pod_is_asked_before_it_is_killed(kubelet: Kubelet, tmp_path: Path) -> None:
    """preStop first, then SIGTERM."""
    hook = {"preStop": {"exec": {"command": ["touch", "hook"]}}}
    script = f"trap '[ -e hook ] && touch asked; exit 0' TERM; echo '{READY}'; while :; do sleep 0.05; done"
    one = pod(script, lifecycle=hook)
    kubelet.start(one)
    kubelet.stop(one)
    assert (tmp_path / "one" / "asked").exists()
    assert kubelet.processes("one") == []


def test_what_does_not_listen_is_killed_after_its_grace(kubelet: Kubelet) -> None:
    one = pod(f"trap '' TERM; echo '{READY}'; while :; do sleep 0.05; done", grace_s=1)
    kubelet.start(one)
    processes = kubelet.processes("one")
    began = time.monotonic()
    kubelet.stop(one)
    assert time.monotonic() - began >= 1.0
    assert not any(alive(process) for process in processes)


@pytest.mark.parametrize("end", [Kubelet.kill_all, lambda kubelet: kubelet.kill("one")])
def test_everything_below_a_pod_dies_at_once(kubelet: Kubelet, end: Callable[[Kubelet], object]) -> None:
    kubelet.start(pod(f"sleep 600 & sleep 600 & {RUNS}"))
    processes = kubelet.processes("one")
    assert len(processes) == 3
    end(kubelet)
    assert not any(alive(process) for process in processes)


@pytest.mark.parametrize("end", [Kubelet.kill_all, lambda kubelet: kubelet.kill("one")])
def test_what_has_lost_its_parents_dies_too(kubelet: Kubelet, end: Callable[[Kubelet], object]) -> None:
    """As Ray's agents when `ray start` gives up."""
    kubelet.start(pod(f"(setsid sleep 601 &) ; echo '{READY}'; exit 1"))
    wait_until(lambda: kubelet.ended("one"), 60.0)
    (orphan,) = kubelet.processes("one")
    assert kubelet.pod_of(orphan.pid) == "one"
    end(kubelet)
    assert not alive(orphan)


def test_no_pod_outlives_the_test(tmp_path: Path) -> None:
    """Whose process is killed before it can clean up."""
    script = f"""
import sys, time, pathlib
from tests.integration.kubernetes.kubelet import Kubelet
kubelet = Kubelet(pathlib.Path({str(tmp_path)!r}), {{"PATH": "/usr/bin:/bin"}}, {{}})
kubelet.start({pod(RUNS)!r})
print("started", flush=True)
time.sleep(600)
"""
    with psutil.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout.readline() == "started\n"
        (one,) = Kubelet(tmp_path, {}, {}).processes("one")
        assert alive(one)
        test.kill()
    wait_until(lambda: not alive(one), 60.0)


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
