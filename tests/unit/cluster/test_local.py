"""The parts of the local cluster's life cycle that need no cluster."""

import socket
from dataclasses import dataclass, field

from cluster.local import failure_of, free_port, last_line, port_answers, prepare_environment, tcp_port_is_free
from workers.rpc.internal_plane import TOKEN_VARIABLE, token_of_environment

TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
workers.core.errors.ConfigurationError: model: no folder 'nowhere'

During handling, more text
"""


@dataclass
class FakeState:
    """As `ray.serve.schema.ApplicationStatusOverview`."""

    status: str
    message: str = ""
    deployments: dict[str, "FakeState"] = field(default_factory=dict)


def test_environment_never_overrides_the_user() -> None:
    environ = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine"}
    prepare_environment(environ, private=True)
    assert {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine"}.items() <= environ.items()


def test_private_ray_gets_a_token_of_its_own() -> None:
    one: dict[str, str] = {}
    two: dict[str, str] = {}
    prepare_environment(one, private=True)
    prepare_environment(two, private=True)
    assert one["RAY_AUTH_MODE"] == "token"
    assert len(one["RAY_AUTH_TOKEN"]) >= 32
    assert one["RAY_AUTH_TOKEN"] != two["RAY_AUTH_TOKEN"]


def test_the_replicas_of_a_private_ray_share_a_token_of_their_own() -> None:
    one: dict[str, str] = {}
    two: dict[str, str] = {}
    prepare_environment(one, private=True)
    prepare_environment(two, private=True)
    assert token_of_environment(one)
    assert one[TOKEN_VARIABLE] != two[TOKEN_VARIABLE]
    assert one[TOKEN_VARIABLE] != one["RAY_AUTH_TOKEN"]
    mine = {TOKEN_VARIABLE: "the-users-own-internal-token"}
    prepare_environment(mine, private=True)
    assert token_of_environment(mine) == "the-users-own-internal-token"


def test_joining_keeps_the_users_token() -> None:
    environ: dict[str, str] = {}
    prepare_environment(environ, private=False)
    assert "RAY_AUTH_TOKEN" not in environ
    assert TOKEN_VARIABLE not in environ


def test_last_line_finds_the_error() -> None:
    assert last_line(TRACEBACK) == "ConfigurationError: model: no folder 'nowhere'"
    assert last_line("just text\n") == "just text"
    assert last_line("") == "no message"


def test_a_failed_application_says_why() -> None:
    state = FakeState("DEPLOY_FAILED", "failed", {"TargetVerifier": FakeState("UNHEALTHY", TRACEBACK)})
    assert failure_of(state) == "ConfigurationError: model: no folder 'nowhere'"


def test_a_configuration_error_ends_the_wait_while_serve_still_retries() -> None:
    state = FakeState("DEPLOYING", "", {"TargetVerifier": FakeState("UPDATING", TRACEBACK)})
    assert failure_of(state) is not None


def test_other_errors_are_left_to_serves_retries() -> None:
    state = FakeState("DEPLOYING", "", {"TargetVerifier": FakeState("UPDATING", "OSError: port in use")})
    assert failure_of(state) is None


def test_ports() -> None:
    port = free_port()
    assert not port_answers(port)
    assert tcp_port_is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert port_answers(port)
        assert not tcp_port_is_free(port)
