"""GenerationService as Ray Serve's ingress calls it: a method for each rpc, errors as status codes."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Protocol

import grpc
from outrider.v1 import generation_pb2 as pb

from cluster.gateway.heartbeat import with_heartbeats
from cluster.gateway.service import GatewayService
from cluster.gateway.tenants import Metadata
from workers.core.private_log import content_wanted
from workers.rpc.errors import to_status

__all__ = ["CallFailedError", "GrpcIngress", "StatusContext"]


class StatusContext(Protocol):
    """What is used of Serve's `RayServegRPCContext`."""

    def set_code(self, code: grpc.StatusCode) -> None: ...

    def set_details(self, details: str) -> None: ...

    def invocation_metadata(self) -> Metadata: ...


class CallFailedError(Exception):
    """What Serve's replica logs in place of an error that may repeat what the client sent."""


class GrpcIngress(ABC):
    """Mixin for the ingress deployment, which sets `service`.

    Serve's proxies drop trailing metadata of failed calls, so details carry the error's class: `ErrorName: message`.
    Without a code of ours, Serve would send the traceback to the client. What is raised then is for Serve's log only.
    """

    service: GatewayService

    async def Generate(  # the rpc's name
        self, message: pb.GenerateRequest, grpc_context: StatusContext
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        with _statuses(grpc_context):
            responses = self.service.generate(message, _headers(grpc_context))
            # A client that goes away closes this generator, and that ends its work now.
            async with aclosing(with_heartbeats(responses, self.service.heartbeat_s)) as lively:
                async for response in lively:
                    yield response

    async def CountTokens(self, message: pb.CountTokensRequest, grpc_context: StatusContext) -> pb.CountTokensResponse:
        with _statuses(grpc_context):
            return await self.service.count_tokens(message, _headers(grpc_context))

    async def GetModelInfo(
        self, message: pb.GetModelInfoRequest, grpc_context: StatusContext
    ) -> pb.GetModelInfoResponse:
        with _statuses(grpc_context):
            return await self.service.get_model_info(message, _headers(grpc_context))

    async def GetServerInfo(
        self, message: pb.GetServerInfoRequest, grpc_context: StatusContext
    ) -> pb.GetServerInfoResponse:
        with _statuses(grpc_context):
            return await self.service.get_server_info(message, _headers(grpc_context))

    async def ExplainRouting(
        self, message: pb.ExplainRoutingRequest, grpc_context: StatusContext
    ) -> pb.ExplainRoutingResponse:
        with _statuses(grpc_context):
            self.service.tenants.authenticate(_headers(grpc_context))
            return await self.explain(message)

    @abstractmethod
    async def explain(self, message: pb.ExplainRoutingRequest) -> pb.ExplainRoutingResponse:
        """Ask all gateways: the call may reach another one than the request did."""


def _headers(grpc_context: StatusContext) -> Metadata:
    return tuple(grpc_context.invocation_metadata() or ())


@contextmanager
def _statuses(grpc_context: StatusContext) -> Iterator[None]:
    """Set the status of an error, and raise in its place what Serve may log with its text."""
    try:
        yield
    except Exception as error:
        code, details = to_status(error)
        grpc_context.set_code(code)
        grpc_context.set_details(details)
        if content_wanted():
            raise
        raise CallFailedError(f"{code.name}: {details.partition(':')[0]}") from None
