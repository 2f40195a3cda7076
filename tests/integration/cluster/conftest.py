"""One real Ray of two nodes with the real application and tiny models, shared by all tests of this folder.

Verifier and gateway run on the first node, the drafters on the second.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from outrider import Client

from benchmarks import together
from cluster.local import LocalCluster, free_port, prepare_environment
from cluster.security.api_keys import hash_of, new_key
from cluster.security.key_file import KeyEntry, KeyFile, write_keys
from tests.integration.cluster.processes import REPLACEMENT_S, wait_until

# Before anything imports Ray. A second node joins which Ray refuses on the loopback interface.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
os.environ["RAY_metrics_report_interval_ms"] = "1000"  # noqa: SIM112  # as Ray spells it; its own 10 s are long for tests
prepare_environment(os.environ, private=True)

# The SDK and the commands take it from here; applications without keys do not look at it.
API_KEY = os.environ["OUTRIDER_API_KEY"] = new_key()

DRAFT_NODE = "draft_node"  # a resource that only the second node has; it has no CPUs for the others


def application(
    target: Path, draft: Path | None, *, name: str = "outrider", draft_node: bool = False
) -> dict[str, object]:
    """The application's part of a YAML file, small enough for two cores."""
    actor = {"num_cpus": 0.1}
    engine = {"kv_cache": {"block_size": 16, "num_blocks": 128}}
    model = {"dtype": "float32", "num_threads": 1}
    pool = {
        "ray_actor_options": actor,
        "health_check_period_s": 1.0,
        "graceful_shutdown_timeout_s": 20.0,
    }
    args: dict[str, object] = {
        "model_name": "tiny",
        "target": pool
        | {
            "config": engine
            | {
                "model": model | {"model": str(target)},
                "speculation": {"max_depth": 4, "max_width": 2, "max_nodes": 8, "max_grace_ms": 5000.0},
                "method": "draft_model" if draft else "none",
            }
        },
        "gateway": {"ray_actor_options": actor, "graceful_shutdown_timeout_s": 20.0},
    }
    if draft is not None:
        args["draft"] = pool | {
            "ray_actor_options": {"num_cpus": 0, "resources": {DRAFT_NODE: 0.1}} if draft_node else actor,
            "config": engine | {"model": model | {"model": str(draft)}, "grow_ahead": 1},
        }
    return {"name": name, "route_prefix": f"/{name}", "import_path": "cluster.app:build", "args": args}


def document(*applications: dict[str, object], grpc_port: int, http_port: int) -> dict[str, object]:
    return {"logging_config": {"encoding": "JSON"}, **together.document(applications, grpc_port, http_port)}


def write_config(path: Path, content: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="session")
def serve_config(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path, tiny_draft: Path) -> Path:
    """The YAML file that the shared cluster runs."""
    folder = tmp_path_factory.mktemp("config")
    write_keys(folder / "keys.yaml", KeyFile(keys={"tests": KeyEntry(sha256=hash_of(API_KEY))}))
    ours = application(tiny_target, tiny_draft, draft_node=True)
    ours["args"]["gateway"] |= {"tenancy": {"keys_file": str(folder / "keys.yaml")}}  # type: ignore[index]
    content = document(ours, grpc_port=free_port(), http_port=free_port())
    return write_config(folder / "outrider.yaml", content)


@pytest.fixture(scope="session")
def nodes() -> Iterator[LocalCluster]:
    """Ray on two nodes, without anything deployed."""
    with LocalCluster(num_cpus=4) as first:
        first.start_ray()
        with second_node():
            yield first
            from ray import serve

            serve.shutdown()  # while all nodes are there


@contextmanager
def second_node() -> Iterator[subprocess.Popen[bytes]]:
    """`ray start --block` as a child process: ending it ends its raylet and everything on that node."""
    import ray

    address = ray.get_runtime_context().gcs_address
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--address={address}"]
    options = ["--num-cpus=0", f'--resources={{"{DRAFT_NODE}": 1}}', "--object-store-memory=80000000"]
    node = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: DRAFT_NODE in ray.cluster_resources(), REPLACEMENT_S)
        yield node
    finally:
        node.terminate()
        node.wait(timeout=60.0)


@pytest.fixture(scope="session")
def cluster(nodes: LocalCluster, serve_config: Path) -> LocalCluster:
    """The application, ready."""
    from cluster.config.loader import load_config

    nodes.deploy(load_config(serve_config).serve_config)
    nodes.wait_ready(REPLACEMENT_S)
    return nodes


@pytest.fixture(scope="session")
def address(cluster: LocalCluster) -> str:
    return f"127.0.0.1:{cluster.grpc_port}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout=60.0) as opened:
        yield opened
