"""A further Ray node on this machine, which can be lost."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.faults.processes import GONE

__all__ = ["RayNode"]

STORE_BYTES = 80_000_000
JOIN_S = 90.0


class RayNode:
    """`ray start --block` as a child process. Needs a connected Ray that takes nodes."""

    def __init__(self, resources: Mapping[str, float], num_cpus: float = 0) -> None:
        """Returns when the node has joined; `resources` must name one that only this node has."""
        import ray

        command = [str(Path(sys.executable).with_name("ray")), "start", "--block"]
        command += [f"--address={ray.get_runtime_context().gcs_address}", f"--num-cpus={num_cpus:g}"]
        command += [f"--resources={json.dumps(dict(resources))}", f"--object-store-memory={STORE_BYTES}"]
        before = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
        self._process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + JOIN_S
        while not {one["NodeID"] for one in ray.nodes() if one["Alive"]} - before:
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.kill()
                raise RuntimeError("the further Ray node did not join")
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """The raylet, its helpers and its workers."""
        try:
            return [self._process, *self._process.children(recursive=True)]
        except GONE:
            return []

    def kill(self) -> None:
        """SIGKILL to all of it at once, as when a machine loses power."""
        processes = self.processes()
        for process in processes:
            try:
                process.kill()
            except GONE:
                continue
        psutil.wait_procs(processes, timeout=JOIN_S)

    def stop(self) -> None:
        """Let it leave in order."""
        self._process.terminate()
        self._process.wait(timeout=JOIN_S)
