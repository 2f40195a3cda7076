"""After a series of faults nothing is left: no memory, blocks, connections, threads or descriptors."""

import time

import psutil
import pytest

from benchmarks.faults.processes import frozen
from tests.integration.faults.rig import Rig, wait_until

MIB = 2**20
SERIES = 4
MAX_GROWTH_MIB = 40.0
SETTLED_S = 0.3


@pytest.mark.slow
def test_a_series_of_faults_leaves_nothing(rig: Rig) -> None:
    nodes = [*rig.verifiers, *rig.drafters, *rig.gateways]
    with rig.client() as client:
        for _ in range(2):  # connections, caches and pools are in place
            disturb(rig, client)
        before = [level(node.process) for node in nodes]
        for _ in range(SERIES):
            disturb(rig, client)
    wait_until(rig.at_rest, "no requests, sessions and blocks in use")
    for node, (memory, threads, descriptors) in zip(nodes, before, strict=True):
        wait_until(lambda node=node, most=descriptors: node.process.num_fds() <= most + 4, f"{node.name}: descriptors")
        now = level(node.process)
        assert (now[0] - memory) / MIB < MAX_GROWTH_MIB, node.name
        assert now[1] <= threads + 2, f"{node.name}: threads"


def disturb(rig, client) -> None:  # type: ignore[no-untyped-def]
    """Cut every connection of every kind, and hold up one of each pool."""

    def cut_all() -> None:
        for node in (*rig.drafters, *rig.verifiers, *rig.gateways):
            node.proxy.cut()
        with frozen(rig.drafters[1].process), frozen(rig.verifiers[1].process):
            time.sleep(SETTLED_S)

    rig.ask_all(client, cut_all)


def level(process: psutil.Process) -> tuple[int, int, int]:
    """Memory in bytes, threads, descriptors."""
    return process.memory_info().rss, process.num_threads(), process.num_fds()
