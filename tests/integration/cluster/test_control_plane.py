"""Serve's own processes may die under load: no request fails, no token changes."""

import pytest
from outrider import Client

from benchmarks.faults.processes import controller, kill, proxies
from tests.integration.cluster.long_request import drafts_again, plain_answer
from tests.integration.cluster.processes import REPLACEMENT_S, wait_until
from tests.integration.cluster.steady_load import steady_load

pytestmark = (
    pytest.mark.slow
)  # on the cluster that all tests of this folder share, which has to be whole again behind it


def test_the_controller_is_killed_under_load(address: str, client: Client) -> None:
    """Requests do not need it; Ray starts another one, which takes over what runs."""
    (victim,) = controller()
    with steady_load(address) as load:
        kill(victim)
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 4, REPLACEMENT_S)
        wait_until(lambda: [one.pid for one in controller()] not in ([], [victim.pid]), REPLACEMENT_S)
    assert all(answer.attempts == 1 for answer in load.answers), "clients do not notice"
    expected = plain_answer(client)
    wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)


def test_the_proxy_is_killed_under_load(address: str) -> None:
    """The node takes no requests until there is another; the SDK comes through with enough patience."""
    (victim,) = proxies()
    with steady_load(address) as load:
        kill(victim)
        done = len(load.answers)
        wait_until(lambda: len(load.answers) >= done + 4, REPLACEMENT_S)
    assert max(answer.attempts for answer in load.answers) > 1
    assert [one.pid for one in proxies()] != [victim.pid]
