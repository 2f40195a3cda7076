"""Own servers answer holders of the token and of a certificate, and nobody else; over real gRPC."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from outrider.v1 import draft_pb2, draft_pb2_grpc, verifier_pb2, verifier_pb2_grpc

from workers.core.config import RpcConfig, TlsConfig
from workers.core.errors import AuthenticationError, ConfigurationError, InvalidRequestError, UnavailableError
from workers.rpc.channels import RpcOptions, open_channel, start_server
from workers.rpc.errors import from_rpc_error
from workers.rpc.internal_plane import TOKEN_HEADER, TOKEN_VARIABLE, read_token, token_of_environment

TOKEN = "an-internal-token-of-tests"  # noqa: S105
OTHER = "another-internal-token-of-tests"


class Verifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Counts what reaches it."""

    def __init__(self) -> None:
        self.calls = 0

    async def GetInfo(self, request: Any, context: Any) -> verifier_pb2.VerifierGetInfoResponse:
        self.calls += 1
        return verifier_pb2.VerifierGetInfoResponse(verifier_id="v", model="x" * 100_000)

    async def KvEvents(self, request: Any, context: Any) -> AsyncIterator[verifier_pb2.KvEventsResponse]:
        self.calls += 1
        yield verifier_pb2.KvEventsResponse(sequence_number=7)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[verifier_pb2.VerifierGenerateResponse]:
        self.calls += 1
        yield verifier_pb2.VerifierGenerateResponse(token_ids=[1])


class Drafter(draft_pb2_grpc.DraftServiceServicer):
    async def Speculate(self, request_iterator: Any, context: Any) -> AsyncIterator[draft_pb2.DrafterFrame]:
        async for _ in request_iterator:
            yield draft_pb2.DrafterFrame(welcome=draft_pb2.Welcome(drafter_id="d"))


Serve = Callable[[RpcOptions], AbstractAsyncContextManager[tuple[str, Verifier]]]


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def start(options: RpcOptions) -> AsyncIterator[tuple[str, Verifier]]:
        verifier = Verifier()
        running = await start_server(
            [
                lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(verifier, server),
                lambda server: draft_pb2_grpc.add_DraftServiceServicer_to_server(Drafter(), server),
            ],
            service_names=["outrider.v1.VerifierService"],
            options=options,
        )
        yield running.address, verifier
        await running.stop()

    return start


async def info(address: str, options: RpcOptions) -> str:
    async with open_channel(address, options) as channel:
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        return str((await stub.GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=20)).verifier_id)


async def speculate(address: str, options: RpcOptions) -> str:
    async with open_channel(address, options) as channel:
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate(timeout=20)  # type: ignore[call-arg]
        await call.write(draft_pb2.VerifierFrame(hello=draft_pb2.Hello(verifier_id="v")))
        return str((await call.read()).welcome.drafter_id)


async def events(address: str, options: RpcOptions) -> int:
    async with open_channel(address, options) as channel:
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        return int((await stub.KvEvents(verifier_pb2.KvEventsRequest(), timeout=20).read()).sequence_number)


async def test_holders_of_the_token_are_answered(serve: Serve) -> None:
    async with serve(RpcOptions(token=TOKEN)) as (address, _):
        assert await info(address, RpcOptions(token=TOKEN)) == "v"
        assert await speculate(address, RpcOptions(token=TOKEN)) == "d"
        assert await events(address, RpcOptions(token=TOKEN)) == 7


@pytest.mark.parametrize("token", [None, OTHER, TOKEN + "x", TOKEN[:-1]])
@pytest.mark.parametrize("call", [info, speculate, events])
async def test_all_others_are_not(serve: Serve, token: str | None, call: Callable[..., Any]) -> None:
    async with serve(RpcOptions(token=TOKEN)) as (address, verifier):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address, RpcOptions(token=token))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        error = from_rpc_error(caught.value)
        assert isinstance(error, AuthenticationError)
        assert TOKEN not in str(error)
        assert verifier.calls == 0


async def test_two_tokens_are_not_better_than_one(serve: Serve) -> None:
    async with serve(RpcOptions(token=TOKEN)) as (address, _), open_channel(address, RpcOptions(token=None)) as channel:
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        headers = ((TOKEN_HEADER, OTHER), (TOKEN_HEADER, TOKEN))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetInfo(verifier_pb2.VerifierGetInfoRequest(), metadata=headers)


async def test_a_stranger_who_stays_silent_is_sent_away(serve: Serve) -> None:
    async with serve(RpcOptions(token=TOKEN)) as (address, _), open_channel(address, RpcOptions(token=None)) as channel:
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        async with asyncio.timeout(60):
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_probes_need_no_token(serve: Serve) -> None:
    async with serve(RpcOptions(token=TOKEN)) as (address, _), open_channel(address, RpcOptions(token=None)) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        reply = await health.Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def described(address: str, options: RpcOptions) -> list[str]:
    async with open_channel(address, options) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        return [one.name for one in (await call.read()).list_services_response.service]


async def test_reflection_is_off_unless_asked_for_and_needs_the_token(serve: Serve) -> None:
    known = RpcOptions(token=TOKEN)
    async with serve(known) as (address, _), open_channel(address, known) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        async with asyncio.timeout(60):  # nothing is written: a write into a call that has ended hides its status
            assert await stub.ServerReflectionInfo().code() is grpc.StatusCode.UNIMPLEMENTED
    async with serve(RpcOptions(token=TOKEN, reflection=True)) as (address, _):
        assert "outrider.v1.VerifierService" in await described(address, RpcOptions(token=TOKEN))
        with pytest.raises(grpc.aio.AioRpcError):
            await described(address, RpcOptions(token=None))


async def test_messages_above_the_limit_are_refused_by_both_sides(serve: Serve) -> None:
    large, small = RpcOptions(token=TOKEN), RpcOptions(token=TOKEN, max_message_bytes=65_536)
    async with serve(small) as (address, verifier), open_channel(address, large) as channel:
        stub: Any = verifier_pb2_grpc.VerifierServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Generate(verifier_pb2.VerifierGenerateRequest(prompt_token_ids=[9] * 70_000)).read()
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidRequestError)
        assert "max_message_bytes" in str(error)
        assert verifier.calls == 0
    async with serve(large) as (address, _):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await info(address, small)
        assert isinstance(from_rpc_error(caught.value), InvalidRequestError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, a certificate of it for `replica`, and one of a stranger."""
    folder = tmp_path_factory.mktemp("tls")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "stranger"):
        openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    extension = ["-addext", "subjectAltName=DNS:replica"]
    openssl("req", *curve, *extension, "-keyout", "replica.key", "-out", "replica.csr", "-subj", "/CN=replica")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy"]
    openssl("x509", "-req", "-in", "replica.csr", *signing, "-out", "replica.pem")
    return folder


def tls(folder: Path, name: str = "replica", **fields: Any) -> RpcOptions:
    config = TlsConfig(
        certificate=str(folder / f"{name}.pem"), key=str(folder / f"{name}.key"), ca=str(folder / "ca.pem"), **fields
    )
    return RpcOptions.of(RpcConfig(tls=config), {TOKEN_VARIABLE: TOKEN})


async def test_mutual_tls(serve: Serve, authority: Path) -> None:
    ours = tls(authority, server_name="replica")
    async with serve(ours) as (address, verifier):
        assert await info(address, ours) == "v"
        assert await speculate(address, ours) == "d"
        wrong_name = tls(authority, server_name="other")
        for stranger in (tls(authority, "stranger", server_name="replica"), wrong_name, RpcOptions(token=TOKEN)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await info(address, stranger)
            assert isinstance(from_rpc_error(caught.value), UnavailableError)
        assert verifier.calls == 1


async def test_tls_alone_still_needs_the_token(serve: Serve, authority: Path) -> None:
    async with serve(tls(authority, server_name="replica", mutual=False)) as (address, _):
        stranger = tls(authority, "stranger", server_name="replica")
        assert await info(address, stranger) == "v", "its certificate is not looked at"
        config = TlsConfig(
            certificate=str(authority / "replica.pem"),
            key=str(authority / "replica.key"),
            ca=str(authority / "ca.pem"),
            server_name="replica",
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await info(address, RpcOptions.of(RpcConfig(tls=config), {}))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_file_goes_before_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    assert read_token(RpcConfig(token_file=str(path)), {TOKEN_VARIABLE: OTHER}) == TOKEN
    assert read_token(RpcConfig(), {TOKEN_VARIABLE: OTHER}) == OTHER
    assert read_token(RpcConfig(), {}) is None
    assert token_of_environment({TOKEN_VARIABLE: ""}) is None


@pytest.mark.parametrize("token", ["short", "with blanks in it but long", "umlaut-ä-in-a-long-token", ""])
def test_tokens_that_protect_nothing(tmp_path: Path, token: str) -> None:
    path = tmp_path / "token"
    path.write_text(token)
    with pytest.raises(ConfigurationError, match="at least 16 printable ASCII characters") as caught:
        read_token(RpcConfig(token_file=str(path)), {})
    assert not token or token not in str(caught.value).replace(str(path), "")


def test_files_that_are_missing_or_no_pem(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"token_file: .*nowhere cannot be read: No such file"):
        read_token(RpcConfig(token_file=str(tmp_path / "nowhere")), {})
    (tmp_path / "text").write_text("no certificate")
    path = str(tmp_path / "text")
    with pytest.raises(ConfigurationError, match=r"tls.certificate: .* is no PEM file"):
        RpcOptions.of(RpcConfig(tls=TlsConfig(certificate=path, key=path, ca=path)), {})


def test_secrets_are_not_shown() -> None:
    assert TOKEN not in repr(RpcOptions(token=TOKEN))
