"""One real Ray with the real application and tiny models, shared by all tests of this folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from outrider import Client

from cluster.local import LocalCluster, free_port, prepare_environment

# Before anything imports Ray. A second node joins (test_two_nodes), which Ray refuses on the loopback interface.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
prepare_environment(os.environ, private=True)

SERVICER = "outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server"


def application(target: Path, draft: Path | None, *, name: str = "outrider", prefix: str = "/") -> dict[str, object]:
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
                "speculation": {"max_depth": 4, "max_width": 2, "max_nodes": 8},
                "method": "draft_model" if draft else "none",
            }
        },
        "gateway": {"ray_actor_options": actor, "graceful_shutdown_timeout_s": 20.0},
    }
    if draft is not None:
        args["draft"] = pool | {"config": engine | {"model": model | {"model": str(draft)}, "grow_ahead": 1}}
    return {"name": name, "route_prefix": prefix, "import_path": "cluster.app:build", "args": args}


def document(*applications: dict[str, object], grpc_port: int, http_port: int) -> dict[str, object]:
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": http_port},
        "grpc_options": {"port": grpc_port, "grpc_servicer_functions": [SERVICER]},
        "applications": list(applications),
    }


def write_config(path: Path, content: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="session")
def serve_config(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path, tiny_draft: Path) -> Path:
    """The YAML file that the shared cluster runs."""
    content = document(application(tiny_target, tiny_draft), grpc_port=free_port(), http_port=free_port())
    return write_config(tmp_path_factory.mktemp("config") / "outrider.yaml", content)


@pytest.fixture(scope="session")
def cluster(serve_config: Path) -> Iterator[LocalCluster]:
    from cluster.config.loader import load_config

    with LocalCluster(num_cpus=4) as running:
        running.start_ray()
        running.deploy(load_config(serve_config).serve_config)
        running.wait_ready(timeout_s=120.0)
        yield running


@pytest.fixture(scope="session")
def address(cluster: LocalCluster) -> str:
    return f"127.0.0.1:{cluster.grpc_port}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout=60.0) as opened:
        yield opened
