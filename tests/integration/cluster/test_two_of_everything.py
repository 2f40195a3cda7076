"""Two replicas of each pool, spread over two nodes: updates and the loss of a node under load."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.nodes import RayNode
from benchmarks.faults.processes import replicas
from cluster.config.loader import load_config
from cluster.local import LocalCluster, free_port
from tests.integration.cluster.conftest import application, document, write_config
from tests.integration.cluster.processes import wait_until
from tests.integration.cluster.steady_load import steady_load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "pairs"
READY_S = 400.0
METADATA = {"application": NAME}
POOLS = ("TargetVerifier", "DraftProposer", "Gateway")


@pytest.fixture(scope="module")
def further_node(cluster: LocalCluster) -> Iterator[list[RayNode]]:
    """In a list: the test that loses it puts another in its place."""
    nodes = [RayNode({"further_node": 1}, num_cpus=2)]
    yield nodes
    nodes[0].kill()


@pytest.fixture(scope="module")
def config(
    cluster: LocalCluster, further_node: list[RayNode], tiny_target: Path, tiny_draft: Path, serve_config: Path
) -> Iterator[Path]:
    """The application beside the one of the other tests; one verifier and one drafter on each of two nodes."""
    from ray import serve

    ours = application(tiny_target, tiny_draft, name=NAME)
    args: Any = ours["args"]
    for pool in ("target", "draft", "gateway"):
        args[pool] = args[pool] | {"num_replicas": 2, "health_check_period_s": 1.0, "health_check_timeout_s": 5.0}
    for pool in ("target", "draft"):
        args[pool]["max_replicas_per_node"] = 1
    content = document(ours, grpc_port=free_port(), http_port=free_port())
    path = write_config(serve_config.with_name("pairs.yaml"), content)
    cluster.deploy(load_config(path).serve_config)
    cluster.wait_ready(READY_S)
    wait_until(is_whole, READY_S)
    yield path
    serve.delete(NAME)


def is_whole() -> bool:
    return all(len(replicas(NAME, pool)) == 2 for pool in POOLS)


def test_a_rolling_update_under_load(address: str, cluster: LocalCluster, config: Path) -> None:
    """Every replica of every pool is replaced, gateways included; no request fails."""
    before = {one.pid for pool in POOLS for one in replicas(NAME, pool)}
    changed = config.with_name("pairs-changed.yaml")
    changed.write_text(config.read_text().replace("grow_ahead: 1", "grow_ahead: 2"))
    assert changed.read_text() != config.read_text()
    with steady_load(address, workers=4, metadata=METADATA) as load:
        cluster.deploy(load_config(changed).serve_config)
        wait_until(lambda: is_whole() and not before & pids(), READY_S, period_s=1.0)
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 4, READY_S)


def test_the_loss_of_a_node_under_load(address: str, config: Path, further_node: list[RayNode]) -> None:
    """It carries a verifier and a drafter; all of its processes die at once."""
    gone = {one.pid for one in further_node[0].processes()}
    assert gone & {one.pid for one in replicas(NAME, "TargetVerifier")}, "a verifier is on it"
    assert gone & {one.pid for one in replicas(NAME, "DraftProposer")}, "a drafter is on it"
    with steady_load(address, workers=4, metadata=METADATA) as load:
        further_node[0].kill()
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 8, READY_S)
        further_node[0] = RayNode({"further_node": 1}, num_cpus=2)
        wait_until(is_whole, READY_S, period_s=1.0)


def pids() -> set[int]:
    return {one.pid for pool in POOLS for one in replicas(NAME, pool)}
