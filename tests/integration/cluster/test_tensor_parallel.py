"""Verifiers and drafters of two ranks each on a real Ray: the same text, no loss with a rank, nothing left behind."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import yaml
from outrider import Client, Generation, SamplingParams, Speculation

from benchmarks.faults.processes import freeze, kill, titled
from cluster.config.loader import load_config
from cluster.local import LocalCluster, free_port
from tests.integration.cluster.conftest import document, write_config
from tests.integration.cluster.processes import wait_until

NAME = "shared"
EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-tp.yaml"
PROMPT = "A storm came up"
SAMPLING = SamplingParams(max_tokens=48, temperature=0.7, seed=11, ignore_eos=True)
LONG = SamplingParams(max_tokens=160, temperature=0.7, seed=11, ignore_eos=True)
PATIENCE_S = 600.0  # seconds on a quiet machine, and only a bound on a hang; six processes load a model


def shared_application(target: Path, draft: Path) -> dict[str, Any]:
    """That of the example, with two verifiers, so that one can go on where another has ended."""
    [content] = yaml.safe_load(EXAMPLE.read_text())["applications"]
    args = content["args"]
    for pool, model in ((args["target"], target), (args["draft"], draft)):
        assert pool["config"]["model"]["tensor_parallel_size"] == 2
        pool["config"]["model"] |= {"model": str(model), "rank_timeout_s": 120.0}  # the machine may be busy
        pool["ray_actor_options"] = {"num_cpus": 0.1}
        pool["graceful_shutdown_timeout_s"] = 10.0
    args["target"]["num_replicas"] = 2
    args["target"]["config"]["speculation"]["max_grace_ms"] = 5000.0
    args["gateway"]["ray_actor_options"] = {"num_cpus": 0.1}
    return {**content, "name": NAME, "route_prefix": f"/{NAME}"}


def ranks() -> list[psutil.Process]:
    """Other ranks than 0, of all groups."""
    return titled("TensorParallelRank")


def placement_groups() -> list[str]:
    """States of those that are not gone."""
    states = [group["state"] for group in ray.util.placement_group_table().values()]
    return [state for state in states if state != "REMOVED"]


@pytest.fixture(scope="module")
def served(
    nodes: LocalCluster, tiny_target: Path, tiny_draft: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    from ray import serve

    content = document(shared_application(tiny_target, tiny_draft), grpc_port=free_port(), http_port=free_port())
    path = write_config(tmp_path_factory.mktemp("shared") / "shared.yaml", content)
    nodes.deploy(load_config(path).serve_config)
    nodes.wait_ready(PATIENCE_S)
    yield f"127.0.0.1:{nodes.grpc_port}"
    serve.delete(NAME)


@pytest.fixture
def client(served: str) -> Iterator[Client]:
    with Client(served, timeout=PATIENCE_S, metadata={"application": NAME}) as opened:
        yield opened


def answer(client: Client, sampling: SamplingParams, speculation: Speculation) -> Generation:
    return client.generate(PROMPT, sampling=sampling, speculation=speculation)


@pytest.fixture(scope="module")
def expected(tiny_target: Path) -> list[int]:
    """Of one process, without anything around it."""
    from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
    from workers.core import sampling_params as engine_side

    loaded = tiny_loaded(tiny_target)
    sampling = engine_side.SamplingParams(max_tokens=160, temperature=0.7, ignore_eos=True)
    prompt = loaded.tokenizer.encode(PROMPT)
    engine = make_engine(loaded)
    [result] = run_all(engine, [make_request(prompt, sampling, seed=11, mode=engine_side.SpeculationMode.OFF)])
    engine.stop()
    return result.token_ids


@pytest.mark.timeout(1800)
def test_groups_of_two_write_what_one_process_writes(client: Client, expected: list[int]) -> None:
    assert is_whole()
    assert list(answer(client, SAMPLING, Speculation.off()).token_ids) == expected[:48]
    drafted = answer(client, SAMPLING, Speculation.on())
    assert list(drafted.token_ids) == expected[:48]
    assert drafted.stats.accepted_tokens > 0


def replicas(deployment: str) -> list[psutil.Process]:
    """Rank 0 of each group."""
    return titled(f"ServeReplica:{NAME}:{deployment}")


def member_of(deployment: str, rank: int) -> psutil.Process:
    """A rank that has a connection to a replica of the deployment, or the replica itself."""
    if rank == 0:
        return replicas(deployment)[0]
    ends = {one.laddr for replica in replicas(deployment) for one in replica.net_connections() if one.raddr}
    return next(rank for rank in ranks() if any(one.raddr in ends for one in rank.net_connections() if one.raddr))


FAULTS = [
    ("TargetVerifier", 1, kill),
    pytest.param("TargetVerifier", 0, kill, marks=pytest.mark.slow),
    pytest.param("TargetVerifier", 1, freeze, marks=pytest.mark.slow),  # until rank_timeout_s has passed
    pytest.param("TargetVerifier", 0, freeze, marks=pytest.mark.slow),
    pytest.param("DraftProposer", 1, kill, marks=pytest.mark.slow),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("deployment", "rank", "fault"), FAULTS)
def test_a_lost_rank_under_load_loses_nothing(
    client: Client, expected: list[int], deployment: str, rank: int, fault: Callable[[psutil.Process], None]
) -> None:
    """Both verifiers are at work: what one leaves, the other takes up."""
    before = {process.pid for process in ranks()}
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(answer, client, LONG, Speculation.on()) for _ in range(4)]
        with client.stream(PROMPT, sampling=LONG, speculation=Speculation.on()) as stream:
            next(stream)
            fault(member_of(deployment, rank))
            results = [stream.result(), *(call.result() for call in calls)]
    assert all(list(result.token_ids) == expected for result in results)
    wait_until(lambda: is_whole() and {process.pid for process in ranks()} != before, PATIENCE_S, period_s=0.5)
    assert list(answer(client, SAMPLING, Speculation.off()).token_ids) == expected[:48]


def is_whole() -> bool:
    return len(ranks()) == 3 and placement_groups() == ["CREATED"] * 3


@pytest.mark.timeout(1800)
def test_nothing_is_left_when_the_application_is_deleted(served: str) -> None:
    from ray import serve

    processes = ranks()
    serve.delete(NAME)
    wait_until(lambda: placement_groups() == [], PATIENCE_S, period_s=0.5)
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive
