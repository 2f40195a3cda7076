"""Serve's own processes may die under load: no request fails, no token changes, and what dies later is replaced."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from outrider import Client

from benchmarks.faults.processes import controller, kill, proxies
from tests.integration.cluster.long_request import drafts_again, plain_answer
from tests.integration.cluster.processes import REPLACEMENT_S, replica_processes, wait_until
from tests.integration.cluster.programs import serving
from tests.integration.cluster.steady_load import steady_load

pytestmark = pytest.mark.slow  # on a cluster of its own, so that later tests find theirs whole


@pytest.fixture(scope="module")
def served(serve_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """`outrider serve`: its pid and its address."""
    with serving(serve_config, tmp_path_factory.mktemp("served")) as (process, port, _):
        yield process.pid, f"127.0.0.1:{port}"


def test_the_proxy_is_killed_under_load(served: tuple[int, str]) -> None:
    """The node takes no requests until there is another; the SDK comes through with enough patience."""
    pid, address = served
    (victim,) = proxies(pid)
    with steady_load(address) as load:
        kill(victim)
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 4, REPLACEMENT_S)
    assert max(answer.attempts for answer in load.answers) > 1
    assert [one.pid for one in proxies(pid)] != [victim.pid]


def test_the_controller_is_killed_under_load(served: tuple[int, str]) -> None:
    """Requests do not need it; Ray starts another one, which takes over what runs and replaces what dies."""
    pid, address = served
    (victim,) = controller(pid)
    with steady_load(address) as load:
        kill(victim)
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 4, REPLACEMENT_S)
        wait_until(lambda: [one.pid for one in controller(pid)] not in ([], [victim.pid]), REPLACEMENT_S)
    assert all(answer.attempts == 1 for answer in load.answers), "clients do not notice"
    (drafter,) = replica_processes("DraftProposer", pid)
    kill(drafter)
    with Client(address, timeout=60.0) as client:
        expected = plain_answer(client)
        wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)
