"""Exceptions become statuses and come back as themselves, over real gRPC as well."""

import logging
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.v1 import verifier_pb2_grpc

from workers.core import errors
from workers.core.errors import (
    ConfigurationError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OutriderError,
    OverloadedError,
    UnavailableError,
)
from workers.rpc.channels import RpcOptions, open_channel, start_server
from workers.rpc.errors import ERROR_METADATA_KEY, error_metadata, from_rpc_error, from_status, to_status

KINDS = [getattr(errors, name) for name in errors.__all__ if name != "OutriderError"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_back_as_itself(kind: type[OutriderError]) -> None:
    code, details = to_status(kind("temperature: too hot: 7"))
    assert code not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN)
    assert details == f"{kind.__name__}: temperature: too hot: 7"
    back = from_status(code, details)
    assert type(back) is kind
    assert str(back) == "temperature: too hot: 7"
    assert error_metadata(details) == ((ERROR_METADATA_KEY, kind.__name__),)


@pytest.mark.parametrize("hint_s", [0.001, 0.25, 61.0])
def test_a_retry_hint_travels_in_the_text(hint_s: float) -> None:
    code, details = to_status(OverloadedError("the queue is full", hint_s))
    assert details == f"OverloadedError: the queue is full; retry after {round(hint_s * 1e3)} ms"
    back = from_status(code, details)
    assert isinstance(back, OverloadedError)
    assert back.retry_after_s == hint_s


@pytest.mark.parametrize("hint_s", [86_400.1, 1_199_400.0, 1e30, math.inf])
def test_a_retry_hint_is_never_longer_than_readers_can_read(hint_s: float) -> None:
    error = OverloadedError("the rate is used up", hint_s)
    assert str(error) == "the rate is used up; retry after 86400000 ms"
    assert error.retry_after_s == 86_400.0


@pytest.mark.parametrize(
    "text", ["full", "retry after 5 ms", "full; retry after soon ms", "full; retry after 5 ms, or"]
)
def test_texts_without_a_hint(text: str) -> None:
    assert OverloadedError(text).retry_after_s is None


def test_a_subclass_travels_as_its_nearest_known_class() -> None:
    class SpecialError(OverloadedError):
        pass

    assert to_status(SpecialError("full")) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OverloadedError: full")


def test_unknown_errors_do_not_leak_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        code, details = to_status(KeyError("secret"))
    assert (code, details) == (grpc.StatusCode.INTERNAL, "InternalError: internal error")
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text
    assert to_status(OutriderError("base"))[0] is grpc.StatusCode.INTERNAL


def test_long_texts_are_cut() -> None:
    assert len(to_status(InvalidRequestError("x" * 100_000))[1]) == 2048
    wide = to_status(InvalidRequestError("\U0001f600" * 100_000))[1]
    assert len(quote(wide)) < 8192, "gRPC takes no more in trailers"


def test_texts_cannot_steer_a_terminal() -> None:
    assert to_status(NotFoundError("a\x1b[31m\0\u202e\nb"))[1] == "NotFoundError: a\\x1b[31m\\x00\\u202e\nb"


def test_the_hint_stays_where_a_text_is_cut() -> None:
    code, details = to_status(OverloadedError("x" * 100_000, retry_after_s=0.5))
    again = from_status(code, details)
    assert isinstance(again, OverloadedError)
    assert again.retry_after_s == 0.5


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequestError),
        (grpc.StatusCode.UNKNOWN, InternalError),
        (grpc.StatusCode.DATA_LOSS, InternalError),
    ],
)
def test_statuses_of_foreign_origin(code: grpc.StatusCode, kind: type[OutriderError]) -> None:
    assert type(from_status(code, "failed to connect: x")) is kind
    assert str(from_status(code, "")) == code.name


@dataclass
class FailingService(verifier_pb2_grpc.VerifierServiceServicer):
    error: Exception

    async def Generate(
        self, request: pb.VerifierGenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.VerifierGenerateResponse]:
        yield pb.VerifierGenerateResponse(token_ids=[1])
        raise self.error

    async def GetInfo(
        self, request: pb.VerifierGetInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.VerifierGetInfoResponse:
        raise self.error

    async def KvEvents(
        self, request: pb.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.KvEventsResponse]:
        await context.abort(grpc.StatusCode.DATA_LOSS, "said by the handler itself")
        yield pb.KvEventsResponse()


@pytest.mark.parametrize("error", [OverloadedError("queue full"), ValueError("secret")])
async def test_the_interceptor_maps_errors_of_handlers(error: Exception) -> None:
    service = FailingService(error)
    running = await start_server([lambda s: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(service, s)])
    expected = (
        ("OverloadedError", "queue full") if isinstance(error, OverloadedError) else ("InternalError", "internal error")
    )
    async with open_channel(running.address) as channel:
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as unary:
            await stub.GetInfo(pb.VerifierGetInfoRequest())
        call = stub.Generate(pb.VerifierGenerateRequest())
        assert (await call.read()).token_ids == [1]
        with pytest.raises(grpc.aio.AioRpcError) as stream:
            await call.read()
        for caught in (unary.value, stream.value):
            back = from_rpc_error(caught)
            assert (type(back).__name__, str(back)) == expected
            trailing: Any = caught.trailing_metadata()
            assert dict(trailing)[ERROR_METADATA_KEY] == expected[0]
        with pytest.raises(grpc.aio.AioRpcError) as own:
            await stub.KvEvents(pb.KvEventsRequest()).read()
        assert own.value.code() is grpc.StatusCode.DATA_LOSS
        assert own.value.details() == "said by the handler itself"
    await running.stop()


async def test_servers_report_health_and_refuse_large_messages() -> None:
    service = FailingService(ValueError())
    running = await start_server(
        [lambda s: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(service, s)],
        service_names=["outrider.v1.VerifierService"],
        options=RpcOptions(max_message_bytes=10_000),
    )
    async with open_channel(running.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", "outrider.v1.VerifierService"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(pb.VerifierGenerateRequest(cache_salt="x" * 20_000)).read()
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidRequestError), "trying again would not help"
        assert "max_message_bytes" in str(error)
    await running.stop()


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    first = await start_server([])
    with pytest.raises(ConfigurationError, match=str(first.port)):
        await start_server([], port=first.port)
    await first.stop()
