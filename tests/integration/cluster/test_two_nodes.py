"""A second Ray node joins, drafters move there under a running request, and the node is lost again."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from outrider import Client, Generation, Speculation

from cluster.config.loader import load_config
from cluster.local import LocalCluster
from tests.integration.cluster.long_request import LONG, PROMPT, drafts_again, plain_answer
from tests.integration.cluster.processes import REPLACEMENT_S, replica_processes, wait_until

RESOURCE = "draft_node"


@pytest.fixture(scope="module")
def second_node(cluster: LocalCluster, serve_config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`ray start --block` as a child process: ending it ends its raylet and everything on that node."""
    import ray

    address = ray.get_runtime_context().gcs_address
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--address={address}"]
    options = ["--num-cpus=1", f'--resources={{"{RESOURCE}": 1}}', "--object-store-memory=80000000"]
    node = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: RESOURCE in ray.cluster_resources(), REPLACEMENT_S)
        yield node
    finally:
        node.terminate()
        node.wait(timeout=60.0)
        cluster.deploy(load_config(serve_config).serve_config)
        cluster.wait_ready(REPLACEMENT_S)


@pytest.fixture(scope="module")
def moved_config(serve_config: Path) -> Path:
    """The same application, its drafters on the second node."""
    document = yaml.safe_load(serve_config.read_text())
    document["applications"][0]["args"]["draft"]["ray_actor_options"]["resources"] = {RESOURCE: 0.1}
    moved = serve_config.with_name("moved.yaml")
    moved.write_text(yaml.safe_dump(document))
    return moved


def test_redeploying_moves_drafters_and_a_running_request_finishes(
    client: Client, cluster: LocalCluster, second_node: subprocess.Popen[bytes], moved_config: Path
) -> None:
    """Serve restarts all deployments of an application whose args change: gateway and verifier drain as well."""
    expected = plain_answer(client)
    before = {name: replica_processes(name)[0] for name in ("Gateway", "TargetVerifier", "DraftProposer")}
    results: list[Generation] = []

    def run() -> None:
        results.append(client.generate(PROMPT, sampling=LONG, speculation=Speculation.on(), cache_salt="redeploy"))

    reader = threading.Thread(target=run)
    reader.start()
    cluster.deploy(load_config(moved_config).serve_config)
    reader.join(timeout=REPLACEMENT_S)
    assert results[0].token_ids == expected.token_ids
    wait_until(lambda: not any(process.is_running() for process in before.values()), REPLACEMENT_S)
    cluster.wait_ready(REPLACEMENT_S)
    wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)
    (drafter,) = replica_processes("DraftProposer")
    assert psutil.Process(second_node.pid) in drafter.parents()


def test_losing_the_node_mid_request_changes_nothing(client: Client, second_node: subprocess.Popen[bytes]) -> None:
    expected = plain_answer(client)
    with client.stream(PROMPT, sampling=LONG, speculation=Speculation.on(), cache_salt="node") as stream:
        next(stream)
        second_node.terminate()
        result = stream.result()
    assert result.token_ids == expected.token_ids
    assert client.generate(PROMPT, sampling=LONG, speculation=Speculation.on()).token_ids == expected.token_ids
