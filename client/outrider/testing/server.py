"""An in-process gRPC server that answers from a script."""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from outrider.aio import AsyncClient
from outrider.client import Client
from outrider.params import CHAT_ROLES
from outrider.testing.script import Answer, Fault, Reply, answers, prompt_token_ids
from outrider.v1 import common_pb2, generation_pb2
from outrider.v1.generation_pb2_grpc import GenerationServiceServicer, add_GenerationServiceServicer_to_server

__all__ = ["FakeServer"]

MAX_CONCURRENT_CALLS = 16
POLL_S = 0.01


class FakeServer(GenerationServiceServicer):
    """A GenerationService on a free loopback port. It keeps no limits but `max_tokens`; stop strings have no effect.

    Args:
        reply: The text of every answer, or a function of the request and the answer's index.
        tokens_per_delta: Tokens (bytes of the text) that one message carries.
        text_lag: Characters that are held back, as a server does that looks for stop strings.
        delay_s: Seconds to wait before each message with text.
        heartbeat_ms: Promise signs of life this often, and send them during `delay_s`; 0 = neither.
        model: Name of the model; a request for another one is NOT_FOUND.
        max_message_bytes: Largest request; None = gRPC's default.
        port: Where to listen on 127.0.0.1; 0 = any free port.

    Attributes:
        requests: What Generate was asked, one entry for each attempt.
        metadata: The headers of each of these.
        cancelled: Set when a client left a call of Generate before its end.
    """

    def __init__(
        self,
        reply: Reply = "Hello, world",
        *,
        tokens_per_delta: int = 1,
        text_lag: int = 0,
        delay_s: float = 0.0,
        heartbeat_ms: int = 0,
        model: str = "fake",
        max_message_bytes: int | None = None,
        port: int = 0,
    ) -> None:
        self.reply = reply
        self.tokens_per_delta = tokens_per_delta
        self.text_lag = text_lag
        self.delay_s = delay_s
        self.heartbeat_ms = heartbeat_ms
        self.model = model
        self.requests: list[generation_pb2.GenerateRequest] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.cancelled = threading.Event()
        self._faults: deque[Fault | None] = deque()
        self._stopping = threading.Event()
        options = [("grpc.so_reuseport", 0)]
        if max_message_bytes is not None:
            options.append(("grpc.max_receive_message_length", max_message_bytes))
        self._server = grpc.server(ThreadPoolExecutor(MAX_CONCURRENT_CALLS), options=options)
        add_GenerationServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, **settings: Any) -> Client:
        """A client of this server; takes the settings of `Client`."""
        return Client(self.target, **settings)

    def async_client(self, **settings: Any) -> AsyncClient:
        """An async client of this server; takes the settings of `AsyncClient`."""
        return AsyncClient(self.target, **settings)

    def fail_next(self, *faults: Fault | None) -> None:
        """Let the next calls fail, one fault each, in this order; None = let one pass. Also for the unary calls."""
        self._faults.extend(faults)

    def reset(self) -> None:
        """Forget faults that did not happen, and what was asked."""
        self._faults.clear()
        self.requests.clear()
        self.metadata.clear()
        self.cancelled.clear()

    def close(self) -> None:
        """Stop at once; running calls are cut off."""
        self._stopping.set()
        self._server.stop(grace=None).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def Generate(  # the name of the RPC
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> Iterator[generation_pb2.GenerateResponse]:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        gone = threading.Event()
        context.add_callback(gone.set)
        fault = self._next_fault()
        if fault is not None and fault.after_tokens is None:
            self._fail(fault, context, gone)
            return
        self._check(request, context)
        prompt = prompt_token_ids(request)
        started = generation_pb2.GenerationStarted(
            request_id=request.request_id,
            model=self.model,
            seed=request.sampling.seed,
            prompt_tokens=len(prompt),
            heartbeat_ms=self.heartbeat_ms,
        )
        try:
            yield generation_pb2.GenerateResponse(started=started)
            yield from self._answer(request, len(prompt), fault, context, gone)
        except GeneratorExit:  # how gRPC tells a handler that the client has left
            self.cancelled.set()
            raise

    def CountTokens(
        self, request: generation_pb2.CountTokensRequest, context: Any
    ) -> generation_pb2.CountTokensResponse:
        self._fail_unary(context)
        token_ids = prompt_token_ids(request)
        return generation_pb2.CountTokensResponse(prompt_tokens=len(token_ids), token_ids=token_ids)

    def GetModelInfo(
        self, request: generation_pb2.GetModelInfoRequest, context: Any
    ) -> generation_pb2.GetModelInfoResponse:
        self._fail_unary(context)
        return generation_pb2.GetModelInfoResponse(
            model=self.model,
            model_fingerprint="fake-model",
            tokenizer_hash="utf-8-bytes",
            vocab_size=256,
            context_length=4096,
            dtype="float32",
            default_rule=common_pb2.VERIFICATION_RULE_COUPLED,
            allowed_rules=[common_pb2.VERIFICATION_RULE_COUPLED, common_pb2.VERIFICATION_RULE_REJECTION],
            max_depth=5,
            max_width=4,
            max_nodes=16,
        )

    def GetServerInfo(
        self, request: generation_pb2.GetServerInfoRequest, context: Any
    ) -> generation_pb2.GetServerInfoResponse:
        self._fail_unary(context)
        verifier = generation_pb2.ReplicaInfo(role="verifier", replica_id="fake-0", address=self.target, incarnation=1)
        return generation_pb2.GetServerInfoResponse(version="fake", replicas=[verifier])

    def ExplainRouting(
        self, request: generation_pb2.ExplainRoutingRequest, context: Any
    ) -> generation_pb2.ExplainRoutingResponse:
        self._fail_unary(context)
        known = [one for one in self.requests if one.request_id == request.request_id]
        if not known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"NotFoundError: no request {request.request_id!r}")
        candidate = generation_pb2.RoutingCandidate(
            replica_id="fake-0", cost=1.0, terms=[generation_pb2.RoutingTerm(name="load", cost=1.0)]
        )
        decision = generation_pb2.RoutingDecision(
            pool="verifier",
            policy="kv_aware",
            prompt_tokens=len(prompt_token_ids(known[0])),
            num_replicas=1,
            num_chosen=1,
            candidates=[candidate],
        )
        return generation_pb2.ExplainRoutingResponse(decisions=[decision])

    def _answer(
        self,
        request: generation_pb2.GenerateRequest,
        prompt_tokens: int,
        fault: Fault | None,
        context: Any,
        gone: threading.Event,
    ) -> Iterator[generation_pb2.GenerateResponse]:
        """All answers, their messages taking turns; fails when `fault` is due."""
        todo = answers(self.reply, request, text_lag=self.text_lag)
        wrong = next((answer.index for answer in todo if answer.resumed_wrongly), None)
        if wrong is not None:
            message = f"InvalidRequestError: resume: the tokens of answer {wrong} are not those of this request"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        running = [(answer, self._deltas(answer, request)) for answer in todo if not answer.finished]
        sent = 0
        while running:
            answer, deltas = running.pop(0)
            if fault is not None and fault.after_tokens is not None and sent >= fault.after_tokens:
                self._fail(fault, context, gone)
                return
            delta = next(deltas, None)
            if delta is None:
                finished = answer.end(prompt_tokens, request.sampling.seed, self.tokens_per_delta)
                yield generation_pb2.GenerateResponse(finished=finished)
                continue
            waits = divmod(self.delay_s, self.heartbeat_ms / 1000) if self.heartbeat_ms else (0, self.delay_s)
            for _ in range(int(waits[0])):
                gone.wait(self.heartbeat_ms / 1000)
                yield generation_pb2.GenerateResponse(still_working=generation_pb2.StillWorking())
            if gone.wait(waits[1]):
                self.cancelled.set()
                return
            yield generation_pb2.GenerateResponse(delta=delta)
            sent += len(delta.token_ids)
            running.append((answer, deltas))
        if fault is not None:
            self._fail(fault, context, gone)

    def _deltas(
        self, answer: Answer, request: generation_pb2.GenerateRequest
    ) -> Iterator[generation_pb2.GenerationDelta]:
        return answer.deltas(self.tokens_per_delta, logprobs=request.sampling.HasField("logprobs"))

    def _check(self, request: generation_pb2.GenerateRequest, context: Any) -> None:
        if request.model not in ("", self.model):
            message = f"NotFoundError: no model {request.model!r}; this server has {self.model!r}"
            context.abort(grpc.StatusCode.NOT_FOUND, message)
        role = next((m.role for m in request.chat.messages if m.role not in CHAT_ROLES), None)
        if role is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"InvalidRequestError: unknown chat role {role!r}")

    def _next_fault(self) -> Fault | None:
        return self._faults.popleft() if self._faults else None

    def _fail_unary(self, context: Any) -> None:
        fault = self._next_fault()
        if fault is not None:
            context.abort(fault.code, fault.details)

    def _fail(self, fault: Fault, context: Any, gone: threading.Event) -> None:
        """Carry out `fault`; returns when the stream is to end as if all were well."""
        if fault.hang:
            while not (gone.wait(POLL_S) or self._stopping.is_set()):
                pass
            self.cancelled.set()
        elif fault.code is not grpc.StatusCode.OK:
            context.abort(fault.code, fault.details)
