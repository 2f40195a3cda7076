"""Addresses: what gRPC can reach passes, what can never work is refused at construction."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import outrider
import pytest
from outrider.target import checked_target
from outrider.testing import FakeServer
from outrider.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server

GOOD = [
    "localhost:9000",
    "127.0.0.1:1",
    "my_service.default.svc:65535",
    "bücher.example:443",
    "[::1]:9000",
    "[fe80::1%eth0]:9000",
    "dns:///localhost:9000",
    "DNS:///localhost:9000",
    "dns:localhost:9000",
    "dns:///localhost",  # gRPC takes 443
    "dns:///[::1]:9000",
    "dns://8.8.8.8/localhost:9000",
    "unix:relative.sock",
    "unix:/tmp/a socket",
    "unix:///tmp/socket",
    "unix-abstract:name",
    "ipv4:127.0.0.1:9000",
    "ipv4:127.0.0.1:9000,127.0.0.2:9000",
    "ipv6:[::1]:9000",
    "ipv6:%5B::1%5D:9000",
    "vsock:1:2",
    "xds:///service",
]
BAD = [
    "",
    ":",
    "nonsense",
    "host:",
    ":9000",
    "host:abc",
    "host:0",
    "localhost:99999",
    "localhost:65536",
    "host:-1",
    "host:+9",
    "host: 9",
    "host:٩",
    "host:9000/path",
    "a host:9000",
    " host:9000",
    "host:9000\n",
    "user@host:9000",
    "\ud800:9000",
    "::1",
    "::1:9000",
    "[::1]",
    "[::1]:0",
    "[nonsense]:9000",
    "http://host:8000",
    "https://host:8000",
    "https://host",
    "dns:",
    "dns:///",
    "dns:///localhost:99999",
    "dns:///localhost:abc",
    "dns:///:9000",
    "unix:",
    "unix:\ud800",
    "ipv4:127.0.0.1",
    "ipv4:127.0.0.1:99999",
    "ipv4:127.0.0.1:1,127.0.0.1:0",
    "ipv6:[::1]:99999",
]


@pytest.mark.parametrize("target", GOOD)
def test_what_grpc_can_reach_passes(target: str) -> None:
    assert checked_target(target) == target


@pytest.mark.parametrize("target", BAD)
def test_what_cannot_work_is_refused_and_the_allowed_forms_are_named(target: str) -> None:
    with pytest.raises(outrider.ConfigurationError) as caught:
        checked_target(target)
    message = caught.value.message
    assert message.startswith("target: expected host:port with a port from 1 to 65535, [ipv6]:port, ")
    assert message.endswith(f"got {target!r}")


@pytest.mark.parametrize("kind", [outrider.Client, outrider.AsyncClient])
def test_both_clients_refuse_at_construction(kind: type) -> None:
    with pytest.raises(outrider.ConfigurationError, match="a port from 1 to 65535"):
        kind("localhost:99999")


@pytest.mark.parametrize("form", ["localhost:{port}", "dns:///localhost:{port}", "ipv4:127.0.0.1:{port}"])
def test_a_server_is_reached_by_every_form(form: str, server: FakeServer) -> None:
    with outrider.Client(form.format(port=server.port)) as client:
        assert client.generate("x").text == "Hello, world"


def test_a_server_is_reached_by_its_socket(server: FakeServer) -> None:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        target = f"unix:{Path(folder, 'socket')}"
        local = grpc.server(ThreadPoolExecutor(1))
        add_GenerationServiceServicer_to_server(server, local)
        local.add_insecure_port(target)
        local.start()
        try:
            with outrider.Client(target) as client:
                assert client.generate("x").text == "Hello, world"
        finally:
            local.stop(grace=None).wait()
