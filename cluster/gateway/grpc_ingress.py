"""GenerationService as Ray Serve's ingress calls it: a method for each rpc, errors as status codes."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import grpc
from outrider.v1 import generation_pb2 as pb

from cluster.gateway.heartbeat import with_heartbeats
from cluster.gateway.service import GatewayService
from workers.rpc.errors import to_status

__all__ = ["GrpcIngress", "StatusContext"]


class StatusContext(Protocol):
    """What is used of Serve's `RayServegRPCContext`."""

    def set_code(self, code: grpc.StatusCode) -> None: ...

    def set_details(self, details: str) -> None: ...


class GrpcIngress(ABC):
    """Mixin for the ingress deployment, which sets `service`.

    Serve's proxies drop trailing metadata of failed calls, so details carry the error's class: `ErrorName: message`.
    Without a code of ours, Serve would send the traceback to the client.
    """

    service: GatewayService

    async def Generate(  # the rpc's name
        self, message: pb.GenerateRequest, grpc_context: StatusContext
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        try:
            lively = with_heartbeats(self.service.generate(message), self.service.heartbeat_s)
            async with aclosing(lively) as responses:  # a client that goes away ends it now
                async for response in responses:
                    yield response
        except Exception as error:
            _report(error, grpc_context)
            raise

    async def CountTokens(self, message: pb.CountTokensRequest, grpc_context: StatusContext) -> pb.CountTokensResponse:
        try:
            return await self.service.count_tokens(message)
        except Exception as error:
            _report(error, grpc_context)
            raise

    async def GetModelInfo(
        self, message: pb.GetModelInfoRequest, grpc_context: StatusContext
    ) -> pb.GetModelInfoResponse:
        try:
            return await self.service.get_model_info(message)
        except Exception as error:
            _report(error, grpc_context)
            raise

    async def GetServerInfo(
        self, message: pb.GetServerInfoRequest, grpc_context: StatusContext
    ) -> pb.GetServerInfoResponse:
        try:
            return await self.service.get_server_info(message)
        except Exception as error:
            _report(error, grpc_context)
            raise

    async def ExplainRouting(
        self, message: pb.ExplainRoutingRequest, grpc_context: StatusContext
    ) -> pb.ExplainRoutingResponse:
        try:
            return await self.explain(message)
        except Exception as error:
            _report(error, grpc_context)
            raise

    @abstractmethod
    async def explain(self, message: pb.ExplainRoutingRequest) -> pb.ExplainRoutingResponse:
        """Ask all gateways: the call may reach another one than the request did."""


def _report(error: Exception, grpc_context: StatusContext) -> None:
    code, details = to_status(error)
    grpc_context.set_code(code)
    grpc_context.set_details(details)
