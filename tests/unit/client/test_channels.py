"""Settings of clients and the connection pool."""

from typing import Any

import outrider
import pytest
from outrider.channels import ChannelPool, channel_options
from outrider.testing import FakeServer


def make_pool(
    max_connections: int, streams: int = 2, discarded: list[str] | None = None
) -> tuple[ChannelPool[str, str], list[str]]:
    opened: list[str] = []

    def open_channel() -> str:
        opened.append(f"channel {len(opened)}")
        return opened[-1]

    pool = ChannelPool(
        open_channel,
        lambda channel: f"stub of {channel}",
        max_connections=max_connections,
        streams_per_connection=streams,
        discard=(discarded if discarded is not None else []).append,
    )
    return pool, opened


def test_connections_open_when_the_others_are_full() -> None:
    pool, opened = make_pool(max_connections=2)
    assert not opened
    with pool.lease() as first, pool.lease() as second:
        assert first == second == "stub of channel 0"
        with pool.lease() as third:
            assert third == "stub of channel 1"
            with pool.lease() as fourth, pool.lease() as fifth:
                assert fourth == "stub of channel 1"
                assert fifth == "stub of channel 0"  # all full: no more than two are opened
    with pool.lease() as again:
        assert again == "stub of channel 0"
    assert len(opened) == 2


def test_a_failed_call_gives_its_place_back() -> None:
    pool, opened = make_pool(max_connections=9, streams=1)
    for _ in range(3):
        with pytest.raises(KeyError), pool.lease():
            raise KeyError
    assert len(opened) == 1


def test_a_retired_connection_takes_no_more_calls_and_is_closed_after_its_last() -> None:
    discarded: list[str] = []
    pool, opened = make_pool(max_connections=1, streams=9, discarded=discarded)
    with pool.lease():
        with pool.lease() as stub:
            pool.retire(stub)
            with pool.lease() as other:
                assert (stub, other) == ("stub of channel 0", "stub of channel 1")
        assert discarded == []
    assert discarded == ["channel 0"]
    assert pool.close() == ["channel 1"]
    assert len(opened) == 2


def test_a_closed_pool_hands_out_nothing() -> None:
    pool, opened = make_pool(max_connections=1)
    with pool.lease():
        pass
    assert pool.close() == opened
    with pytest.raises(outrider.CancelledError, match="the client is closed"), pool.lease():
        pass


def test_a_channel_closed_under_a_call_reads_as_a_closed_client() -> None:
    pool, _ = make_pool(max_connections=1)
    with pytest.raises(ValueError, match="other"), pool.lease():
        raise ValueError("other")
    with pytest.raises(outrider.CancelledError, match="the client is closed"):
        call_while_closing(pool)


def call_while_closing(pool: ChannelPool[str, str]) -> None:
    with pool.lease():
        pool.close()
        raise ValueError("Cannot invoke RPC on closed channel!")


def test_more_streams_than_a_connection_carries() -> None:
    with FakeServer() as server, server.client(max_connections=3) as client:
        streams = [client.stream(str(i)) for i in range(12)]
        for stream in streams:
            next(stream)
        assert {stream.result().text for stream in streams} == {"Hello, world"}


def test_channel_options() -> None:
    options = dict(channel_options(5000))
    assert options["grpc.max_receive_message_length"] == options["grpc.max_send_message_length"] == 5000
    assert options["grpc.max_reconnect_backoff_ms"] <= 5000
    assert options["grpc.enable_retries"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "http://host:8000"}, "target: expected host:port .* got 'http://host:8000'"),
        ({"target": 9000}, "target: expected host:port .* got 9000"),
        ({"timeout": 0}, "timeout: expected a number of seconds above 0"),
        ({"silence_timeout": 0}, "silence_timeout: expected a number of seconds above 0"),
        ({"timeout": "1"}, "timeout: expected a number of seconds"),
        ({"retry": 3}, "retry: expected RetryPolicy, got int"),
        ({"max_message_bytes": 10}, "max_message_bytes must be from 1024 to 2147483647, got 10"),
        ({"max_connections": 0}, "max_connections must be at least 1, got 0"),
        ({"metadata": {"key": 5}}, "metadata: keys and values must be texts, got 'key': int"),
        ({"metadata": {"key": "\ud800"}}, "metadata: the value of 'key' must be printable ASCII"),
        ({"metadata": {"key": "two\nlines"}}, "metadata: the value of 'key' must be printable ASCII"),
        ({"metadata": {"k\u00e9y": "x"}}, "metadata: a key is made of a-z, 0-9, '-', '_' and '.', got 'kéy'"),
    ],
)
@pytest.mark.parametrize("kind", [outrider.Client, outrider.AsyncClient])
def test_settings_that_cannot_work_are_refused(kind: type, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.ConfigurationError, match=message):
        kind(**{"target": "localhost:9000", **settings})


def test_metadata_goes_with_every_call() -> None:
    with FakeServer() as server, server.client(metadata={"Authorization": "Bearer k"}) as client:
        client.generate("x")
        assert server.metadata[0]["authorization"] == "Bearer k"
    with FakeServer() as server, server.client(metadata=[("application", "a")]) as client:
        client.generate("x")
        assert server.metadata[0]["application"] == "a"


def test_a_prompt_above_the_servers_limit_is_not_retried() -> None:
    with FakeServer(max_message_bytes=2000) as server, server.client() as client:
        with pytest.raises(outrider.InvalidRequestError, match=r"above the size limit .*larger than max"):
            client.generate("x" * 5000)
        assert client.generate("x").attempts == 1


def test_messages_above_the_clients_limit_are_named() -> None:
    with FakeServer("y" * 5000, tokens_per_delta=5000) as server, server.client(max_message_bytes=2000) as client:
        with pytest.raises(outrider.InvalidRequestError, match=r"above the size limit \(see max_message_bytes\)"):
            client.generate("x")
        with pytest.raises(outrider.InvalidRequestError, match="above the size limit"):
            client.generate("x" * 5000)
        assert len(server.requests) == 1


def test_messages_above_grpcs_own_default_pass() -> None:
    size = 5 * 1024 * 1024 // 2  # as text and as tokens
    with FakeServer("y" * size, tokens_per_delta=size) as server, server.client() as client:
        assert len(client.generate("x").text) == size
