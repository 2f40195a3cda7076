"""The key goes with every call, from wherever it was given, and is never shown."""

from typing import Any

import outrider
import pytest
from outrider import ConfigurationError
from outrider.client_core import API_KEY_VARIABLE, _with_api_key
from outrider.testing import FakeClock, FakeServer

from tests.unit.client.callers import Caller

KEY = "outrider_test-key-of-nobody"


def sent(server: FakeServer) -> object:
    return server.metadata[-1].get("authorization")


def test_both_clients_send_it(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    caller.generate(server.target, clock, {"api_key": KEY}, prompt="x")
    assert sent(server) == f"Bearer {KEY}"
    caller.generate(server.target, clock, {}, prompt="x")
    assert sent(server) is None


@pytest.mark.parametrize(
    ("environment", "metadata", "api_key", "expected"),
    [
        (KEY, (), None, f"Bearer {KEY}"),
        (KEY, (), "", None),
        (KEY, (), "other", "Bearer other"),
        (KEY, (("authorization", "Bearer mine"),), None, "Bearer mine"),
        ("", (), None, None),
        (None, (), None, None),
    ],
)
def test_where_it_comes_from(
    environment: str | None, metadata: tuple[tuple[str, str], ...], api_key: str | None, expected: str | None
) -> None:
    environ = {} if environment is None else {API_KEY_VARIABLE: environment}
    assert dict(_with_api_key(metadata, api_key, environ)).get("authorization") == expected


@pytest.mark.parametrize("bad", ["two words", "ümlaut", "line\nbreak", 7])
def test_what_is_no_key(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="api_key: expected printable ASCII without blanks") as caught:
        outrider.Client("localhost:1", api_key=bad)
    assert str(bad) not in str(caught.value)


def test_two_keys_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="give one of the two"):
        outrider.Client("localhost:1", api_key=KEY, metadata={"Authorization": "Bearer x"})


def test_a_priority_is_sent(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    caller.generate(server.target, clock, {}, prompt="x", priority=-2)
    assert server.requests[-1].priority == -2


@pytest.mark.parametrize("bad", ["high", 1.5, True, 2**40])
def test_priorities_that_are_no_integers(caller: Caller, server: FakeServer, clock: FakeClock, bad: Any) -> None:
    with pytest.raises(outrider.InvalidRequestError, match="priority: expected an integer from -10 to 10"):
        caller.generate(server.target, clock, {}, prompt="x", priority=bad)
