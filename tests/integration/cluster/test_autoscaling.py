"""The example of autoscaling on a real cluster, with windows of seconds: it follows the load, and nobody notices."""

import copy
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from outrider import Client, SamplingParams

from cluster.config.loader import load_config
from cluster.local import LocalCluster, free_port
from tests.integration.cluster.conftest import document, write_config
from tests.integration.cluster.processes import REPLACEMENT_S, wait_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "autoscaling.yaml"
NAME = "scaling"
SCALED_S = 3 * REPLACEMENT_S  # two models start one after the other
BUSY = 8  # requests at a time; a verifier of this test runs two
PROMPT = "A storm came up"
SAMPLING = SamplingParams(max_tokens=60, temperature=0.7, seed=11, ignore_eos=True)
FAST_UP = {"window_s": 1, "period_s": 1}
FAST_DOWN = {"window_s": 4, "period_s": 1}


def scaled(target: Path, draft: Path, *, dry_run: bool) -> dict[str, Any]:
    """The example's application, small and quick."""
    application: dict[str, Any] = copy.deepcopy(yaml.safe_load(EXAMPLE.read_text())["applications"][0])
    application |= {"name": NAME, "route_prefix": f"/{NAME}"}
    args = application["args"]
    args["autoscaling"]["dry_run"] = dry_run
    args["autoscaling"]["verifiers"]["target_ttft_ms"] = None  # this machine may be slow at any time
    for kind in ("verifiers", "drafters"):
        args["autoscaling"][kind]["settle_s"] = 2
        for direction, limits in (("up", FAST_UP), ("down", FAST_DOWN)):
            args["autoscaling"][kind][direction] = {"max_replicas": 1, "max_percent": 100, **limits}
    for pool, model in (("target", target), ("draft", draft)):
        args[pool]["autoscaling"] = {"min_replicas": 1, "max_replicas": 2, "metrics_interval_s": 0.5}
        args[pool]["config"]["model"]["model"] = str(model)
    for pool in ("target", "draft", "gateway"):
        args[pool]["ray_actor_options"] = {"num_cpus": 0.1}
        args[pool]["graceful_shutdown_timeout_s"] = 20.0
    args["target"]["config"]["max_running_requests"] = 2
    return application


def deploy(nodes: LocalCluster, folder: Path, application: dict[str, Any]) -> None:
    content = document(application, grpc_port=free_port(), http_port=free_port())  # where none run yet
    path = write_config(folder / "scaling.yaml", content)
    nodes.deploy(load_config(path).serve_config)
    nodes.wait_ready(SCALED_S)


def running(deployment: str) -> int:
    from ray import serve

    state = serve.status().applications[NAME].deployments[deployment]
    return int(state.replica_states.get("RUNNING", 0))


def controller_log() -> str:
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    return "".join(path.read_text() for path in session.glob("logs/serve/controller_*.log"))


@contextmanager
def load(address: str, expected: tuple[int, ...]) -> Iterator[None]:
    """BUSY requests at a time until the end; each must get the whole and the right answer."""
    stop = threading.Event()

    def run() -> int:
        with Client(address, timeout=SCALED_S, metadata={"application": NAME}) as client:
            for done in itertools.count():
                if stop.is_set():
                    return done
                assert tuple(client.generate(PROMPT, sampling=SAMPLING).token_ids) == expected
        return 0

    with ThreadPoolExecutor(BUSY) as pool:
        futures = [pool.submit(run) for _ in range(BUSY)]
        try:
            yield
        finally:
            stop.set()
        assert all(future.result() > 0 for future in futures)


@pytest.fixture
def address(nodes: LocalCluster) -> Iterator[str]:
    """Replaces the shared application's; the port is known when something is deployed."""
    from ray import serve

    yield "127.0.0.1"
    serve.delete(NAME)


@pytest.mark.timeout(900)
def test_it_follows_the_load(
    nodes: LocalCluster, address: str, tmp_path: Path, tiny_target: Path, tiny_draft: Path
) -> None:
    deploy(nodes, tmp_path, scaled(tiny_target, tiny_draft, dry_run=False))
    address = f"{address}:{nodes.grpc_port}"
    with Client(address, timeout=SCALED_S, metadata={"application": NAME}) as client:
        expected = tuple(client.generate(PROMPT, sampling=SAMPLING).token_ids)
        with load(address, expected):
            wait_until(lambda: running("TargetVerifier") == 2, SCALED_S)
        wait_until(
            lambda: (
                tuple(client.generate(PROMPT, sampling=SAMPLING).token_ids) == expected
                and (running("TargetVerifier"), running("DraftProposer")) == (1, 1)
            ),
            SCALED_S,
            period_s=0.5,
        )
    assert "scales TargetVerifier from 1 to 2" in controller_log()
    assert "scales TargetVerifier from 2 to 1" in controller_log()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_dry_run_says_it_and_does_nothing(
    nodes: LocalCluster, address: str, tmp_path: Path, tiny_target: Path, tiny_draft: Path
) -> None:
    deploy(nodes, tmp_path, scaled(tiny_target, tiny_draft, dry_run=True))
    address = f"{address}:{nodes.grpc_port}"
    with Client(address, timeout=SCALED_S, metadata={"application": NAME}) as client:
        expected = tuple(client.generate(PROMPT, sampling=SAMPLING).token_ids)
    with load(address, expected):
        wait_until(lambda: "would scale TargetVerifier from 1 to 2" in controller_log(), SCALED_S)
        assert (running("TargetVerifier"), running("DraftProposer")) == (1, 1)
