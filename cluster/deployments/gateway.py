"""The ingress deployment: gRPC methods for clients, streams to the verifiers' own servers."""

import asyncio
import logging
import random
import time
from importlib.metadata import version

from outrider.v1 import generation_pb2 as pb
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from cluster.config.gateway import GatewayConfig
from cluster.gateway.grpc_ingress import GrpcIngress
from cluster.gateway.service import GatewayService
from cluster.observability.logs import log_through_serve
from cluster.observability.ray_export import export_to_ray
from cluster.router.directory import MembershipDirectory
from cluster.router.membership import MEMBERSHIP
from workers.core.config import RpcConfig
from workers.core.errors import ConfigurationError, NotFoundError
from workers.core.shown import shown
from workers.rpc.channels import RpcOptions
from workers.rpc.tracing import tracer_of
from workers.text.tokenizer import Tokenizer

__all__ = ["HEALTH_PATH", "Gateway", "check_tokenizers"]

HEALTH_PATH = "/healthz"

logger = logging.getLogger("ray.serve")


class Gateway(GrpcIngress):
    """Wraps `GatewayService`. The handles are never called: their routers tell this process who lives."""

    def __init__(
        self,
        config: GatewayConfig,
        model_name: str,
        target_model: str,
        draft_model: str | None,
        verifiers: DeploymentHandle,
        drafters: DeploymentHandle | None,
        internal: RpcConfig,
    ) -> None:
        """`target_model`, `draft_model`: where their tokenizers are."""
        log_through_serve()
        tokenizer = Tokenizer.load(target_model)
        if draft_model is not None:
            check_tokenizers(target_model, tokenizer, draft_model, Tokenizer.load(draft_model))
        # A router exists, and hears of replicas, from the first `options` of a handle on.
        self._handles = [one.options() for one in (verifiers, drafters) if one is not None]
        self._directory = MembershipDirectory(
            MEMBERSHIP,
            serve.get_replica_context().app_name,
            verifiers.deployment_name,
            drafters.deployment_name if drafters is not None else None,
        )
        self.service = GatewayService(
            config=config,
            model_name=model_name,
            tokenizer=tokenizer,
            directory=self._directory,
            version=version("outrider-server"),
            clock=time.monotonic,
            rng=random.SystemRandom(),
            options=RpcOptions.of(internal),
            tracer=tracer_of(internal, "outrider-gateway"),
            follow_clients=internal.tracing is not None and internal.tracing.follow_clients,
        )
        self._exporter = export_to_ray("gateway", self.service.readings)
        if self.service.tenants.open:  # Serve's gRPC proxies listen on all interfaces, whatever Ray does
            logger.warning("no gateway.tenancy.keys_file: everybody who reaches the gRPC port may call")

    async def __call__(self, request: Request) -> PlainTextResponse:
        """HTTP: /healthz says whether requests can be answered."""
        if not request.url.path.endswith(HEALTH_PATH):
            return PlainTextResponse(f"only {HEALTH_PATH} is served over HTTP; the API is gRPC\n", status_code=404)
        ready = bool(self._directory.verifiers())
        return PlainTextResponse("ok\n" if ready else "no verifier is available\n", status_code=200 if ready else 503)

    async def check_health(self) -> None:
        """Answers at all: Serve notices a blocked event loop by the missing answer."""
        self.service.refresh()

    async def routing_decisions(self, request_id: str) -> list[bytes]:
        """What this replica knows of the request; called by its peers."""
        return [decision.SerializeToString() for decision in self.service.explain_routing(request_id)]

    async def explain(self, message: pb.ExplainRoutingRequest) -> pb.ExplainRoutingResponse:
        """Ask every gateway replica, this one included; `NotFoundError` when none knows the request."""
        application = serve.get_replica_context().app_name
        handle = await asyncio.to_thread(serve.get_app_handle, application)
        answers = await handle.broadcast("routing_decisions", message.request_id).results_async()
        decisions = [pb.RoutingDecision.FromString(one) for answer in answers for one in answer]
        if not decisions:
            raise NotFoundError(
                f"nothing is known of the routing of request {shown(message.request_id)}: "
                "it is unknown, or too long ago"
            )
        return pb.ExplainRoutingResponse(decisions=decisions)

    async def __del__(self) -> None:
        """Serve has waited for the requests, which it counts itself."""
        service = getattr(self, "service", None)
        if service is not None:
            if self._exporter is not None:
                await asyncio.to_thread(self._exporter.stop)
            await service.close()


def check_tokenizers(target_model: str, target: Tokenizer, draft_model: str, draft: Tokenizer) -> None:
    """Raise `ConfigurationError` unless the draft speaks the target's tokens."""
    if target.tokenizer_hash != draft.tokenizer_hash:
        raise ConfigurationError(
            f"the tokenizers of target {target_model!r} ({target.vocab_size} tokens) and draft {draft_model!r} "
            f"({draft.vocab_size} tokens) differ; a draft model needs exactly the target's tokenizer"
        )
