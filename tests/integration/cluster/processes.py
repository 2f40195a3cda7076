"""Looking at, and for, the processes of the cluster that this test session started."""

import time
from collections.abc import Callable

import psutil

from benchmarks.faults.processes import titled

__all__ = ["REPLACEMENT_S", "on_second_node", "replica_processes", "wait_until"]

REPLACEMENT_S = 90.0  # for a new replica; seconds on a quiet machine, much more on a busy one


def replica_processes(deployment: str, below: int | None = None) -> list[psutil.Process]:
    """Processes below this one, or below `below`, that run a replica of the deployment."""
    return titled(f"ServeReplica:outrider:{deployment}", below)


def on_second_node(process: psutil.Process) -> bool:
    """Whether it descends from the `ray start --block` of the second node."""
    return any({"start", "--block"} <= set(one.cmdline()) for one in process.parents())


def wait_until(condition: Callable[[], bool], timeout_s: float, period_s: float = 0.1) -> None:
    """Return when the condition holds; AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        time.sleep(period_s)
