"""Faults of processes: killed, frozen, slowed down; and which processes a Serve application consists of."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

__all__ = [
    "GONE",
    "controller",
    "freeze",
    "frozen",
    "kill",
    "proxies",
    "raylets",
    "replicas",
    "slowed",
    "thaw",
    "titled",
]

GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)
END_S = 20.0


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is gone; a frozen one dies as well."""
    with suppress(*GONE):
        process.kill()
        psutil.wait_procs([process], timeout=END_S)


def freeze(process: psutil.Process) -> None:
    """SIGSTOP: its connections stay open and nobody answers on them."""
    with suppress(*GONE):
        process.send_signal(signal.SIGSTOP)


def thaw(process: psutil.Process) -> None:
    with suppress(*GONE):
        process.send_signal(signal.SIGCONT)


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """Within the block; it goes on behind it if it still lives."""
    freeze(process)
    try:
        yield
    finally:
        thaw(process)


@contextmanager
def slowed(process: psutil.Process, share: float = 0.1, period_s: float = 0.2) -> Iterator[None]:
    """Let the process run only `share` of the time, by freezing and thawing it in turn."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    over = threading.Event()

    def drive() -> None:
        while not over.is_set():
            freeze(process)
            over.wait((1.0 - share) * period_s)
            thaw(process)
            over.wait(share * period_s)

    driver = threading.Thread(target=drive, name="slow-down", daemon=True)
    driver.start()
    try:
        yield
    finally:
        over.set()
        driver.join()


def replicas(application: str, deployment: str) -> list[psutil.Process]:
    """Of the running replicas of a deployment, by the pids in Serve's own status. Needs a connected Ray."""
    from ray.serve.context import _get_global_client

    found: list[Any] = []
    client = _get_global_client()
    details = client.get_serve_details() if client is not None else {"applications": {}}
    deployments = details["applications"].get(application, {}).get("deployments", {})
    for replica in deployments.get(deployment, {}).get("replicas", []):
        if replica["state"] == "RUNNING" and replica["pid"]:
            with suppress(*GONE):
                found.append(psutil.Process(replica["pid"]))
    return found


def titled(title: str, below: int | None = None) -> list[psutil.Process]:
    """Processes below this one, or below `below`, with `title` in their command line.

    Ray names a worker after its actor's class: so a rank of a tensor-parallel group is found, too.
    """
    found = []
    for process in psutil.Process(below).children(recursive=True):
        with suppress(*GONE):
            if process.status() != psutil.STATUS_ZOMBIE and any(title in word for word in process.cmdline()):
                found.append(process)
    return found


def controller(below: int | None = None) -> list[psutil.Process]:
    """Serve's controller."""
    return titled("ray::ServeController", below)


def proxies(below: int | None = None) -> list[psutil.Process]:
    """Serve's proxies, one on each node that has them."""
    return titled("ray::ProxyActor", below)


def raylets() -> list[psutil.Process]:
    """The raylet of every node that descends from this process."""
    return [one for one in titled("/raylet/raylet") if one.name() == "raylet"]
