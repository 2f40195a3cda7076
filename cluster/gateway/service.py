"""The gateway's work, independent of how its calls arrive: `grpc_ingress` puts it behind Serve."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from typing import TypeVar

import grpc
from outrider.v1 import generation_pb2 as pb
from outrider.v1 import verifier_pb2

from cluster.config.gateway import GatewayConfig
from cluster.gateway.admission import AdmittedRequest, admit, check_message, check_model
from cluster.gateway.answer import Answer, AnswerContext
from cluster.gateway.explanation import decision_to_wire
from cluster.gateway.merge import merged
from cluster.gateway.meter import GatewayMeter, RequestRecord
from cluster.gateway.model_info import ModelInfo
from cluster.gateway.places import Places
from cluster.gateway.progress import AnswerProgress
from cluster.gateway.replica_pool import ReplicaPool
from cluster.gateway.stall import StallWatch
from cluster.gateway.tenants import Metadata, Tenant, Tenants
from cluster.router.directory import ReplicaDirectory
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.replica_table import ReplicaKey, key_of
from workers.core.errors import IncompatibleError, InvalidRequestError, UnavailableError
from workers.core.readings import Readings
from workers.core.seeds import derive_seed
from workers.core.tracing import NO_SPAN, NO_TRACER, TRACEPARENT, Span, Tracer
from workers.rpc.channels import RpcOptions
from workers.text.chat_template import Message
from workers.text.tokenizer import Tokenizer

__all__ = ["GatewayService"]

INFO_TIMEOUT_S = 2.0
LONG_PROMPT = 16_384  # characters; longer ones are tokenised beside the event loop
LONG_RESUME = 2_048  # tokens of all answers; the text of more is rebuilt beside the event loop

Result = TypeVar("Result")


class GatewayService:
    """Belongs to one event loop. Methods raise `OutriderError`s; closing a stream cancels its work at once."""

    def __init__(
        self,
        *,
        config: GatewayConfig,
        model_name: str,
        tokenizer: Tokenizer,
        directory: ReplicaDirectory,
        version: str,
        clock: Callable[[], float],
        rng: random.Random,
        options: RpcOptions | None = None,
        tracer: Tracer = NO_TRACER,
        follow_clients: bool = False,
    ) -> None:
        """`clock` in seconds, monotonic; `rng` draws seeds and request ids: `random.SystemRandom()` in production.

        `follow_clients`: a caller's own `traceparent` continues its trace, and decides whether it is recorded.
        """
        self._config = config
        self._model_name = model_name
        self._tokenizer = tokenizer
        self._directory = directory
        self._version = version
        self._clock = clock
        self._rng = rng
        self.meter = GatewayMeter(clock)
        self._tracer = tracer
        self._follow_clients = follow_clients
        self._pool = ReplicaPool(
            directory, config.routing, clock=clock, rng=rng, options=options, routed=self.meter.routed
        )
        self._watch = StallWatch(
            self._ask,
            lambda verifier: key_of(verifier) in map(key_of, directory.verifiers()),
            probe_after_s=config.stall_probe_ms / 1e3,
            timeout_s=config.stall_timeout_ms / 1e3,
        )
        self._model: ModelInfo | None = None
        self._places = Places(clock)
        self.tenants = Tenants(config, clock)

    @property
    def active_requests(self) -> int:
        return self._places.taken

    @property
    def heartbeat_s(self) -> float:
        """Longest silence that clients are told to expect; 0 = any."""
        return self._config.heartbeat_ms / 1e3

    async def close(self) -> None:
        """Close the connections; streams that still run end with `UnavailableError`."""
        self._watch.close()
        await self._pool.close()
        await asyncio.to_thread(self._tracer.close)

    async def generate(
        self, message: pb.GenerateRequest, metadata: Metadata = ()
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Messages as proto/outrider/v1/generation.proto describes them; `metadata` are the call's headers."""
        with self.meter.request(self._span(metadata)) as record:
            async with aclosing(self._generate(message, metadata, record)) as responses:
                async for response in responses:
                    self.meter.sent(record, response)
                    yield response

    async def _generate(
        self, message: pb.GenerateRequest, metadata: Metadata, record: RequestRecord
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        deadline_at = self._clock() + message.deadline_ms / 1e3 if message.deadline_ms else None
        tenant = self.tenants.authenticate(metadata)
        record.tenant = tenant.name
        with tenant.occupied(), self._counted():
            check_message(message, self._config)
            model = await self.model()
            check_model(message.model, model)
            prompt = await self._prompt_tokens(message)
            request = self._admit(message, prompt, model, tenant)
            tenant.begin(len(prompt) + request.resumed_tokens)
            self.meter.admitted(record, request.request_id, len(prompt))
            answers = await self._answers(request, deadline_at, record.span)
            yield pb.GenerateResponse(
                started=pb.GenerationStarted(
                    request_id=request.request_id,
                    model=model.name,
                    seed=request.seed,
                    prompt_tokens=len(prompt),
                    heartbeat_ms=self._config.heartbeat_ms,
                )
            )
            try:
                async with aclosing(merged([answer.messages() for answer in answers])) as responses:
                    async for response in responses:
                        tenant.spend(len(response.delta.token_ids))
                        yield response
            finally:
                await self._pool.forget_gone()

    async def count_tokens(self, message: pb.CountTokensRequest, metadata: Metadata = ()) -> pb.CountTokensResponse:
        self.tenants.authenticate(metadata)
        check_message(message, self._config)
        prompt = await self._prompt_tokens(message)
        return pb.CountTokensResponse(prompt_tokens=len(prompt), token_ids=prompt)

    async def get_model_info(self, message: pb.GetModelInfoRequest, metadata: Metadata = ()) -> pb.GetModelInfoResponse:
        self.tenants.authenticate(metadata)
        return (await self.model()).to_wire()

    async def get_server_info(
        self, message: pb.GetServerInfoRequest, metadata: Metadata = ()
    ) -> pb.GetServerInfoResponse:
        """Verifiers are asked for their load; one that does not answer is shown with what is known of it."""
        self.tenants.authenticate(metadata)
        verifiers = await asyncio.gather(*(self._verifier_info(one) for one in self._directory.verifiers()))
        drafters = [_replica_info(one, self._pool.load(one)) for one in self._directory.drafters()]
        return pb.GetServerInfoResponse(version=self._version, replicas=[*verifiers, *drafters])

    def explain_routing(self, request_id: str) -> list[pb.RoutingDecision]:
        """Choices of this gateway for the request; [] when it knows of none."""
        return [decision_to_wire(decision) for decision in self._pool.explain(request_id)]

    def readings(self) -> Readings:
        """All that it counts, for whoever exports it; one reader, from any thread."""
        live = {"verifier": len(self._directory.verifiers()), "drafter": len(self._directory.drafters())}
        return self.meter.readings(live)

    def refresh(self) -> None:
        """Take notice of replicas that came and went, so that the first request finds their caches known."""
        self._pool.refresh()

    async def model(self) -> ModelInfo:
        """The served model, asked of a verifier at the first call; `UnavailableError` while there is none."""
        if self._model is not None:
            return self._model
        info = await self._first_info()
        if info.tokenizer_hash != self._tokenizer.tokenizer_hash:
            raise IncompatibleError(
                f"the gateway's tokenizer ({self._tokenizer.tokenizer_hash}) is not that of the target model "
                f"{info.model!r} ({info.tokenizer_hash}); both must be loaded from the same model"
            )
        self._model = ModelInfo.from_wire(self._model_name, info)
        return self._model

    async def _first_info(self) -> verifier_pb2.VerifierGetInfoResponse:
        """Of the first verifier that answers; others are asked when one does not."""
        silent: set[ReplicaKey] = set()
        for attempt in range(1, self._config.max_attempts + 1):
            verifier = await self._pool.any_verifier(self._config.replica_wait_ms / 1e3, silent)
            if verifier is None:
                break
            try:
                return await self._ask(verifier)
            except grpc.aio.AioRpcError as error:
                silent.add(key_of(verifier))
                if attempt == self._config.max_attempts:
                    raise UnavailableError(
                        f"verifier {verifier.replica_id} does not answer: {error.code().name}"
                    ) from error
        raise UnavailableError("no verifier is available yet; try again later")

    def _counted(self) -> AbstractContextManager[None]:
        limit = self._config.max_concurrent_requests
        return self._places.one(limit, f"this gateway has {limit} requests in progress, its limit; try again later")

    def _admit(
        self, message: pb.GenerateRequest, prompt: list[int], model: ModelInfo, tenant: Tenant
    ) -> AdmittedRequest:
        """Within what the server allows everybody, and what it allows this caller."""
        ceiling = tenant.output_ceiling(self._config.max_output_tokens)
        config = self._config.model_copy(update={"max_output_tokens": ceiling})
        request = admit(message, prompt, model=model, config=config, rng=self._rng)
        tenant.check_priority(request.priority)
        salt = self.tenants.cache_salt(tenant, request.cache_salt)
        return dataclasses.replace(request, cache_salt=salt, tenant=tenant.for_verifiers)

    def _span(self, metadata: Metadata) -> Span:
        if not self._tracer.enabled:
            return NO_SPAN
        followed = metadata if self._follow_clients else ()
        parent = next((str(value) for key, value in followed if key == TRACEPARENT), "")
        return self._tracer.start("gateway.generate", parent)

    async def _answers(self, request: AdmittedRequest, deadline_at: float | None, span: Span) -> list[Answer]:
        """One for each that the client does not have completely."""
        context = AnswerContext(
            request,
            self._pool,
            self._watch,
            self._config,
            self._tokenizer.tokenizer_hash,
            self._clock,
            deadline_at,
            self.meter,
            self._tracer,
            span.traceparent,
        )
        wanted = [i for i in range(request.sampling.n) if not (i in request.resume and request.resume[i].finished)]
        eos = self._tokenizer.eos_token_ids
        resumed = sum(len(point.token_ids) for point in request.resume.values())
        progress = await _beside_loop_if(
            resumed > LONG_RESUME, lambda: [AnswerProgress(request, self._tokenizer, eos, i) for i in wanted]
        )
        return [Answer(context, i, derive_seed(request.seed, i), one) for i, one in zip(wanted, progress, strict=True)]

    async def _prompt_tokens(self, message: pb.GenerateRequest | pb.CountTokensRequest) -> list[int]:
        """`InvalidRequestError` for an empty prompt, an unknown role, or none at all."""
        if isinstance(message, pb.GenerateRequest) and message.WhichOneof("prompt") == "tokens":
            if not message.tokens.token_ids:
                raise InvalidRequestError("prompt: the list of tokens is empty; at least one token is needed")
            return list(message.tokens.token_ids)
        match message.WhichOneof("prompt"):
            case "text":
                text = message.text
                return await _beside_loop_if(len(text) > LONG_PROMPT, lambda: self._tokenizer.encode(text))
            case "chat":
                chat = [Message(one.role, one.content) for one in message.chat.messages]
                length = sum(len(one.content) for one in chat)
                return await _beside_loop_if(length > LONG_PROMPT, lambda: self._tokenizer.encode_chat(chat))
        allowed = "text, chat or tokens" if isinstance(message, pb.GenerateRequest) else "text or chat"
        raise InvalidRequestError(f"prompt: none is given; one of {allowed} is needed")

    async def _ask(
        self, verifier: ReplicaRecord, timeout_s: float = INFO_TIMEOUT_S
    ) -> verifier_pb2.VerifierGetInfoResponse:
        with self._pool.connected(verifier):
            return await self._pool.stub(verifier).GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=timeout_s)

    async def _verifier_info(self, verifier: ReplicaRecord) -> pb.ReplicaInfo:
        shown = _replica_info(verifier, self._pool.load(verifier))
        try:
            info = await self._ask(verifier)
        except grpc.aio.AioRpcError:
            return shown
        shown.running_requests = info.running_requests
        shown.waiting_requests = info.waiting_requests
        shown.total_kv_blocks = info.total_kv_blocks
        shown.free_kv_blocks = info.free_kv_blocks
        return shown


async def _beside_loop_if(long: bool, work: Callable[[], Result]) -> Result:
    return await asyncio.to_thread(work) if long else work()


def _replica_info(record: ReplicaRecord, load: ReplicaLoad) -> pb.ReplicaInfo:
    return pb.ReplicaInfo(
        role=record.role,
        replica_id=record.replica_id,
        address=record.address,
        incarnation=record.incarnation,
        model=record.model,
        running_requests=load.running_requests,
        waiting_requests=load.waiting_requests,
        total_kv_blocks=load.total_kv_blocks,
        free_kv_blocks=load.free_kv_blocks,
    )
