"""Who may call the replicas' own servers: holders of one shared token, and optionally of a certificate.

The token travels as metadata of each call, `outrider-internal-token`. Without TLS it keeps out strangers that can reach
a port, not listeners on the network. `docs/security.md` says what each of the two is good for.
"""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import grpc

from workers.core.config import RpcConfig, TlsConfig
from workers.core.errors import AuthenticationError, ConfigurationError

__all__ = [
    "TOKEN_HEADER",
    "TOKEN_VARIABLE",
    "AuthorizedChannel",
    "TlsFiles",
    "TokenInterceptor",
    "read_tls",
    "read_token",
    "token_of_environment",
]

TOKEN_VARIABLE = "OUTRIDER_INTERNAL_TOKEN"  # noqa: S105  # a name, no token
TOKEN_HEADER = "outrider-internal-token"  # noqa: S105  # as above
MIN_TOKEN_LENGTH = 16
HEALTH_PREFIX = "/grpc.health.v1.Health/"  # probes have no token, and learn only whether it serves
FIRST_FRAME_S = 2.0

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, repr=False)
class TlsFiles:
    """PEM contents, not paths."""

    certificate: bytes
    key: bytes
    ca: bytes
    server_name: str | None
    mutual: bool

    @property
    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.ca if self.mutual else None,
            require_client_auth=self.mutual,
        )

    @property
    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


def token_of_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """The token that this process was given, or None; `ConfigurationError` for one that cannot protect anything."""
    token = (os.environ if environ is None else environ).get(TOKEN_VARIABLE)
    return None if not token else _checked(token, TOKEN_VARIABLE)


def read_token(config: RpcConfig, environ: Mapping[str, str] | None = None) -> str | None:
    """The file's token, else the environment's; None = calls are not authenticated."""
    if config.token_file is None:
        return token_of_environment(environ)
    return _checked(_read(config.token_file, "token_file").decode(errors="replace").strip(), config.token_file)


def read_tls(config: TlsConfig | None) -> TlsFiles | None:
    """`ConfigurationError` names the file that is missing or no PEM."""
    if config is None:
        return None
    contents = {}
    for field in ("certificate", "key", "ca"):
        path = getattr(config, field)
        contents[field] = _read(path, f"tls.{field}")
        if b"-----BEGIN " not in contents[field]:
            raise ConfigurationError(f"tls.{field}: {path} is no PEM file")
    return TlsFiles(**contents, server_name=config.server_name, mutual=config.mutual)


def _read(path: str, field: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{field}: {path} cannot be read: {error.strerror}") from None


def _checked(token: str, source: str) -> str:
    if len(token) < MIN_TOKEN_LENGTH or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError(
            f"{source}: the internal token needs at least {MIN_TOKEN_LENGTH} printable ASCII characters without blanks"
        )
    return token


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Lets calls pass that bring the token; others raise `AuthenticationError` in their handler.

    It belongs inside `ErrorInterceptor`, which turns that into UNAUTHENTICATED.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        handler: Any = await continuation(handler_call_details)
        details: Any = handler_call_details
        if handler is None or details.method.startswith(HEALTH_PREFIX) or self._fits(details.invocation_metadata):
            return handler  # type: ignore[no-any-return]
        return _refusing(handler)  # type: ignore[no-any-return]

    def _fits(self, metadata: Any) -> bool:
        given = [value for key, value in metadata or () if key == TOKEN_HEADER]
        return len(given) == 1 and hmac.compare_digest(str(given[0]).encode(), self._token)


def _refuse() -> NoReturn:
    raise AuthenticationError("calls to this server need the internal token")


def _refusing(handler: Any) -> Any:
    """A handler of the same kind that never reaches the servicer."""

    async def unary(request: Any, context: _Context) -> Any:
        _refuse()

    async def stream(request: Any, context: _Context) -> AsyncIterator[Any]:
        if handler.request_streaming:  # gRPC loses the status of a stream that ends before its first frame was read
            try:
                async with asyncio.timeout(FIRST_FRAME_S):
                    await anext(request, None)
            except TimeoutError:
                pass
        _refuse()
        yield

    codecs = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.response_streaming:
        make = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(stream, **codecs)
    make = grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    return make(unary, **codecs)


class AuthorizedChannel(grpc.aio.Channel):
    """A channel that sends the token with each call.

    gRPC's own client interceptors would do, but their calls lose statuses of streams that break while being written to.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._header = (TOKEN_HEADER, token)

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._authorized(self._channel.unary_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._authorized(self._channel.unary_stream(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._authorized(self._channel.stream_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._authorized(self._channel.stream_stream(*arguments, **options))

    def _authorized(self, method: Any) -> Callable[..., Any]:
        def call(*request: Any, metadata: Any = None, **options: Any) -> Any:
            return method(*request, metadata=(*(metadata or ()), self._header), **options)

        return call

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close(None)
