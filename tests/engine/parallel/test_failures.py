"""A rank that dies or freezes, with and without work: the group says so, requests end, nothing is left running."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from tests.fakes.engines import Collector, make_engine, make_request
from tests.fakes.parallel_models import build_shared_model, load_shared
from tests.integration.processes import Answer, Server, VerifierClient, verifier_process
from workers.core.errors import UnavailableError
from workers.core.request import GenerationRequest, StepOutput
from workers.core.sampling_params import SamplingParams, SpeculationMode
from workers.models.loaded import LoadedModel

LONG = SamplingParams(temperature=0.8, max_tokens=400, ignore_eos=True)
PROMPT = [7, 11, 13, 17]
LIMIT_S = 60.0  # only bounds a hang


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shared_model(tmp_path_factory.mktemp("target"))


@contextmanager
def group_of(target: Path, ranks: int, rank_timeout_s: float) -> Iterator[tuple[LoadedModel, list[psutil.Process]]]:
    before = set(psutil.Process().children())
    loaded = load_shared(target, ranks, rank_timeout_s=rank_timeout_s)
    processes = [child for child in psutil.Process().children() if child not in before]
    assert len(processes) == ranks - 1
    try:
        yield loaded, processes
    finally:
        loaded.close()
        _, alive = psutil.wait_procs(processes, timeout=LIMIT_S)
        assert not alive


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def has_failed(loaded: LoadedModel) -> bool:
    try:
        loaded.check_health()
    except UnavailableError:
        return True
    return False


def test_a_frozen_rank_under_work_fails_the_step_and_all_ranks_end(target: Path) -> None:
    with group_of(target, 3, rank_timeout_s=5.0) as (loaded, processes):
        engine = make_engine(loaded)
        collector = Collector()
        engine.submit(make_request(PROMPT, LONG, mode=SpeculationMode.OFF), collector)
        assert collector.first.wait(LIMIT_S)
        processes[0].suspend()
        result = collector.wait(LIMIT_S)
        assert isinstance(result.error, UnavailableError)
        assert has_failed(loaded)
        with pytest.raises(UnavailableError):
            engine.submit(make_request(PROMPT, LONG), Collector())
        _, alive = psutil.wait_procs(processes, timeout=LIMIT_S)
        assert not alive, "the frozen one, too"
        engine.stop()


def test_an_idle_group_lives_until_a_rank_freezes(target: Path) -> None:
    with group_of(target, 2, rank_timeout_s=2.0) as (loaded, processes):
        time.sleep(5.0)
        assert not has_failed(loaded), "having nothing to do is no failure"
        processes[0].suspend()
        wait_until(lambda: has_failed(loaded))
        with pytest.raises(UnavailableError, match="tensor-parallel group"):
            loaded.check_health()


@pytest.fixture
def server(target: Path, tmp_path: Path) -> Iterator[Server]:
    settings = {"tensor_parallel_size": 2, "rank_timeout_s": 5.0}
    with verifier_process(
        target, tmp_path, model_settings=settings, method="none", speculation={"profile_ms": 0.0}
    ) as running:
        yield running


def long_request() -> GenerationRequest:
    return make_request(PROMPT, LONG, seed=3, mode=SpeculationMode.OFF)


def read_until_it_breaks(steps: Iterator[StepOutput], into: Answer) -> grpc.StatusCode:
    try:
        for step in steps:
            into.token_ids.extend(step.token_ids)
    except grpc.RpcError as error:
        status: grpc.StatusCode = error.code()
        return status
    raise AssertionError("the stream ended as if nothing had happened")


def test_kill_9_of_a_rank_ends_requests_as_unavailable_and_the_server(server: Server, target: Path) -> None:
    """What came before is the beginning of the answer, which goes on elsewhere."""
    client = VerifierClient(server.address)
    [rank] = server.process.children()
    received = Answer()
    steps = client.stream(long_request())
    received.token_ids.extend(next(steps).token_ids)
    rank.kill()
    assert read_until_it_breaks(steps, received) is grpc.StatusCode.UNAVAILABLE
    client.channel.close()
    assert server.process.wait(LIMIT_S) == 3
    engine = make_engine(load_shared(target, 1))
    collector = Collector()
    engine.submit(long_request(), collector)
    expected = collector.wait(LIMIT_S).token_ids
    engine.stop()
    assert 0 < len(received.token_ids) < len(expected) == 400
    assert received.token_ids == expected[: len(received.token_ids)]


def test_ranks_do_not_outlive_rank_0(server: Server) -> None:
    ranks = server.process.children()
    assert ranks
    server.kill()
    _, alive = psutil.wait_procs(ranks, timeout=LIMIT_S)
    assert not alive
