"""A stand-in for the kubelet: the containers of a pod are processes on this machine.

The first container is Ray's; a pod runs when that one says so, and has ended when that one has. The others are started
after it. Images, init containers, volumes, probes and limits are not played.

A pod has a folder of its own, in which all of its processes work: by it they are found, also those whose parents have
gone, which a container would take with it.
"""

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.k8s.kustomize import Manifest

__all__ = ["Kubelet", "PodError"]

READY = "Ray runtime started."
START_S = 90.0
POLL_S = 0.1
END_S = 30.0
# When the test's process (or the thread that has started a container) is gone without a word, Linux kills the
# container; and `ray start --block` has the same done to its processes.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


class PodError(RuntimeError):
    """A pod does not come up; with the end of what it printed."""


@dataclass(frozen=True)
class _Container:
    process: psutil.Popen
    log: Path


class Kubelet:
    """Of the whole cluster; its processes belong to one test."""

    def __init__(self, folder: Path, environment: Mapping[str, str], secrets: Mapping[str, Mapping[str, str]]) -> None:
        """`folder` gets the pods' folders and logs."""
        self._folder, self._environment, self._secrets = folder.resolve(), environment, secrets
        self._pods: dict[str, list[_Container]] = {}

    def start(self, pod: Manifest) -> None:
        """Returns when Ray runs in it. Raises `PodError`, and then nothing of it is left."""
        name = pod["metadata"]["name"]
        (self._folder / name).mkdir(exist_ok=True)
        containers = self._pods[name] = []
        try:
            for container in pod["spec"]["containers"]:
                containers.append(self._run(name, container))
                if len(containers) == 1:
                    self._wait_ready(name, containers[0])
        except BaseException:
            self.kill(name)
            raise

    def ended(self, name: str) -> bool:
        """Whether Ray's container of it has."""
        return self._pods[name][0].process.poll() is not None

    def sidecar_problem(self, name: str) -> str | None:
        """What a further container of a pod printed last when it should run and does not."""
        for container in self._pods.get(name, [])[1:]:
            if container.process.poll() is not None:
                return f"{container.log.stem} has ended with {container.process.returncode}: {_tail(container.log)}"
        return None

    def stop(self, pod: Manifest) -> None:
        """As a pod is deleted: preStop, SIGTERM, and SIGKILL to what is left after its grace."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        deadline = time.monotonic() + spec["terminationGracePeriodSeconds"]
        hook = spec["containers"][0].get("lifecycle", {}).get("preStop")
        if hook is not None:
            subprocess.run(hook["exec"]["command"], check=True, cwd=self._folder / name)
        for container in self._pods[name]:
            with suppress(*GONE):
                container.process.terminate()
        while self.processes(name) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self.kill(name)

    def kill(self, name: str) -> None:
        """SIGKILL to all of it at once, and forget it."""
        self._kill(name)
        for container in self._pods.pop(name, []):
            container.process.wait(END_S)

    def kill_all(self) -> None:
        """Every pod. RuntimeError when something stays."""
        for name in list(self._pods):
            self.kill(name)
        self._kill("")

    def processes(self, name: str) -> list[psutil.Process]:
        """All that work in a pod's folder, or for "" in any. What is dead and not yet buried works nowhere."""
        found = []
        for process in psutil.process_iter():
            with suppress(*GONE, psutil.AccessDenied):
                if Path(process.cwd()).is_relative_to(self._folder / name):
                    found.append(process)
        return found

    def pod_of(self, pid: int) -> str:
        """The pod that a process belongs to; "" when it belongs to none, or is gone."""
        with suppress(*GONE, psutil.AccessDenied):
            place = Path(psutil.Process(pid).cwd())
            if place.parent == self._folder and place.name in self._pods:
                return place.name
        return ""

    def logs(self) -> str:
        """The end of what every container has printed."""
        return "\n".join(f"{path.stem}: {_tail(path)}" for path in sorted(self._folder.glob("*.log")))

    def _run(self, pod: str, container: Manifest) -> _Container:
        log = self._folder / f"{pod}.{container['name']}.log"
        given = {one["name"]: self._value(one) for one in container.get("env", [])}
        with log.open("wb") as sink:
            process = psutil.Popen(
                [*ENDS_WITH_US, *container["args"]],
                cwd=self._folder / pod,
                env={**self._environment, **given},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        return _Container(process, log)

    def _value(self, variable: Manifest) -> str:
        if "value" in variable:
            return str(variable["value"])
        reference = variable["valueFrom"]["secretKeyRef"]
        return self._secrets[reference["name"]][reference["key"]]

    def _wait_ready(self, pod: str, container: _Container) -> None:
        deadline = time.monotonic() + START_S
        while READY not in container.log.read_text(errors="replace"):
            if container.process.poll() is not None or time.monotonic() > deadline:
                raise PodError(f"{pod} does not come up: {_tail(container.log)}")
            time.sleep(POLL_S)

    def _kill(self, name: str) -> None:
        """Again and again: what is killed may have started something just before."""
        deadline = time.monotonic() + END_S
        while left := self.processes(name):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name or 'pods'} cannot be killed: {left}")
            for process in left:
                with suppress(*GONE):
                    process.kill()
            time.sleep(POLL_S)


def _tail(log: Path, characters: int = 2000) -> str:
    return log.read_text(errors="replace")[-characters:]
