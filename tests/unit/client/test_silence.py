"""A stream without a sign of life is given up and resumed; one that is only slow is not."""

import time

import grpc
import outrider
import pytest
from outrider.testing import FakeClock, FakeServer, Fault

from tests.unit.client.callers import Caller

SILENCE = {"silence_timeout": 0.8}
HANG_S = 60.0


@pytest.mark.parametrize("after_tokens", [None, 5])
def test_a_hanging_stream_is_resumed(
    after_tokens: int | None, caller: Caller, server: FakeServer, clock: FakeClock
) -> None:
    server.heartbeat_ms = 50
    server.fail_next(Fault(after_tokens=after_tokens, hang=True))
    started = time.monotonic()
    generation = caller.generate(server.target, clock, SILENCE, prompt="x")
    assert (generation.text, generation.attempts) == ("Hello, world", 2)
    assert 0.8 <= time.monotonic() - started < HANG_S
    assert server.cancelled.wait(HANG_S), "the server hears that it was left"


def test_signs_of_life_keep_a_slow_stream(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.heartbeat_ms, server.delay_s, server.tokens_per_delta = 100, 1.5, 12
    generation = caller.generate(server.target, clock, SILENCE, prompt="x")
    assert (generation.text, generation.attempts) == ("Hello, world", 1)


def test_a_server_that_sends_none_is_not_held_to_it(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.delay_s, server.tokens_per_delta = 1.5, 12
    assert caller.generate(server.target, clock, SILENCE, prompt="x").attempts == 1


def test_a_reader_that_takes_its_time_is_no_silence(server: FakeServer) -> None:
    server.heartbeat_ms = 50
    with server.client(silence_timeout=0.8) as client, client.stream("x") as stream:
        for _ in stream:
            time.sleep(0.1)  # longer than the limit, all together
        assert stream.result().attempts == 1


def test_silence_for_ever_ends_in_an_error(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    server.fail_next(*[Fault(hang=True)] * 9)
    settings = SILENCE | {"retry": outrider.RetryPolicy(max_attempts=2)}
    with pytest.raises(outrider.UnavailableError, match=r"no sign of life from the server for 0.8 s .*2 attempts"):
        caller.generate(server.target, clock, settings, prompt="x")


def test_gaps_and_repetitions_are_noticed(caller: Caller, clock: FakeClock) -> None:
    class Forgetful(FakeServer):
        """Sends the offset of the delta before."""

        def _deltas(self, answer, request):  # type: ignore[no-untyped-def]
            for delta in super()._deltas(answer, request):
                delta.offset = max(0, delta.offset - 1)
                yield delta

    with Forgetful() as server, pytest.raises(outrider.ProtocolViolationError, match="at token 0, but 1 have arrived"):
        caller.generate(server.target, clock, {}, prompt="x")


def test_other_streams_of_the_connection_go_on(server: FakeServer) -> None:
    """Silence retires the connection; what still runs on it ends in peace."""
    server.heartbeat_ms = 50
    with server.client(silence_timeout=0.8) as client, client.stream("x") as other:
        next(other)
        server.fail_next(Fault(grpc.StatusCode.UNAVAILABLE, after_tokens=3, hang=True))
        assert client.generate("y").attempts == 2
        assert other.result().attempts == 1
