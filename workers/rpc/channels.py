"""Options of every channel and server, and the one way to start a server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from workers.core.config import RpcConfig
from workers.core.errors import ConfigurationError
from workers.rpc.interceptor import ErrorInterceptor
from workers.rpc.internal_plane import (
    AuthorizedChannel,
    TlsFiles,
    TokenInterceptor,
    read_tls,
    read_token,
    token_of_environment,
)

__all__ = ["RpcOptions", "RunningServer", "open_channel", "start_server"]

MIB = 2**20


@dataclass(frozen=True)
class RpcOptions:
    """Limits, timings and protection of a channel or a server."""

    max_message_bytes: int = 64 * MIB
    max_reconnect_backoff_ms: int = 1000
    connect_timeout_ms: int = 2000
    own_connection: bool = False  # True: do not share the connection (and its backoff) of other channels
    keepalive_time_ms: int = 10_000  # a peer that vanished without a word is noticed after this ...
    keepalive_timeout_ms: int = 5_000  # ... and this
    token: str | None = field(default_factory=token_of_environment, repr=False)  # None = calls are not authenticated
    tls: TlsFiles | None = field(default=None, repr=False)
    reflection: bool = False

    @classmethod
    def of(cls, config: RpcConfig, environ: Mapping[str, str] | None = None, **fields: Any) -> Self:
        """As configured; reads the files. `ConfigurationError` names one that will not do."""
        return cls(
            max_message_bytes=config.max_message_bytes,
            token=read_token(config, environ),
            tls=read_tls(config.tls),
            reflection=config.reflection,
            **fields,
        )

    @property
    def _common(self) -> list[tuple[str, Any]]:
        return [
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", self.keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    @property
    def client(self) -> list[tuple[str, Any]]:
        return [
            *self._common,
            ("grpc.initial_reconnect_backoff_ms", min(100, self.max_reconnect_backoff_ms)),
            ("grpc.min_reconnect_backoff_ms", self.connect_timeout_ms),  # gRPC's name for it
            ("grpc.max_reconnect_backoff_ms", self.max_reconnect_backoff_ms),
            ("grpc.enable_http_proxy", 0),  # replicas talk to each other directly
            ("grpc.use_local_subchannel_pool", int(self.own_connection)),
            *self._server_name,
        ]

    @property
    def _server_name(self) -> list[tuple[str, Any]]:
        """Replicas are called by address; the name that their certificates carry is told apart from it."""
        if self.tls is None or self.tls.server_name is None:
            return []
        return [("grpc.ssl_target_name_override", self.tls.server_name)]

    @property
    def server(self) -> list[tuple[str, Any]]:
        return [
            *self._common,
            ("grpc.so_reuseport", 0),  # two servers on one port would share its calls silently
            ("grpc.http2.min_ping_interval_without_data_ms", self.keepalive_time_ms // 2),
            ("grpc.http2.max_ping_strikes", 0),
        ]


@dataclass(frozen=True)
class RunningServer:
    """A started server and where it listens."""

    server: grpc.aio.Server
    host: str
    port: int
    health: Any  # grpc_health.v1.health.aio.HealthServicer, which comes without types

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def stop(self, grace_s: float | None = None) -> None:
        """Report NOT_SERVING, let running calls end for `grace_s`, then cancel them."""
        await self.health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


def open_channel(address: str, options: RpcOptions | None = None) -> grpc.aio.Channel:
    """A channel of the running event loop to `host:port`, with token and TLS of `options`; connects on first use."""
    options = options or RpcOptions()
    if options.tls is None:
        channel = grpc.aio.insecure_channel(address, options=options.client)
    else:
        channel = grpc.aio.secure_channel(address, options.tls.channel_credentials, options=options.client)
    return channel if options.token is None else AuthorizedChannel(channel, options.token)


async def start_server(
    add_services: Sequence[Callable[[grpc.aio.Server], None]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    service_names: Sequence[str] = (),
    options: RpcOptions | None = None,
) -> RunningServer:
    """Start a server in the running event loop, with error mapping, the token check and the standard health service.

    `add_services` are functions that add one servicer each, say
    `lambda server: add_DraftServiceServicer_to_server(servicer, server)`; `service_names` are reported as SERVING.
    Port 0 takes a free one. `ConfigurationError` when the port cannot be had.
    """
    options = options or RpcOptions()
    guards = [] if options.token is None else [TokenInterceptor(options.token)]
    server = grpc.aio.server(interceptors=[ErrorInterceptor(), *guards], options=options.server)
    for add in add_services:
        add(server)
    servicer: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]  # as above
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if options.reflection:
        reflection.enable_server_reflection([*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        if options.tls is None:
            bound = server.add_insecure_port(f"{host}:{port}")
        else:
            bound = server.add_secure_port(f"{host}:{port}", options.tls.server_credentials)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from None
    await server.start()
    for name in ("", *service_names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    return RunningServer(server, host, bound, servicer)
