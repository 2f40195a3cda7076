"""The verifier's gRPC service: requests in, committed tokens out."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import grpc
from outrider.v1 import verifier_pb2, verifier_pb2_grpc

from workers.core.config import SpeculationConfig
from workers.core.errors import OutriderError, RefusedError, UnavailableError
from workers.core.request import StepOutput
from workers.core.statistics import GenerationStats
from workers.core.tracing import NO_SPAN, NO_TRACER, TRACEPARENT, Span, Tracer
from workers.rpc import convert
from workers.rpc.kv_events import kv_events_to_wire
from workers.verifier.engine import VerifierEngine
from workers.verifier.info import VerifierInfo

__all__ = ["VerifierService"]

LOAD_REPORT_S = 0.5  # KvEvents subscribers hear of the load at least this often


class _QueueSink:
    """Carries outputs from the engine's thread to the stream's coroutine. Bounded by the request's own length."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[StepOutput | OutriderError] = asyncio.Queue()

    def push(self, output: StepOutput) -> None:
        self._put(output)

    def fail(self, error: OutriderError) -> None:
        self._put(error)

    def _put(self, item: StepOutput | OutriderError) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.queue.put_nowait, item)


class VerifierService(verifier_pb2_grpc.VerifierServiceServicer):
    """Serves `Generate`, `GetInfo` and `KvEvents` for one engine."""

    def __init__(
        self, engine: VerifierEngine, info: VerifierInfo, speculation: SpeculationConfig, tracer: Tracer = NO_TRACER
    ) -> None:
        self._engine = engine
        self._info = info
        self._speculation = speculation
        self._tracer = tracer
        self.draining = False

    async def Generate(
        self,
        request: verifier_pb2.VerifierGenerateRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[verifier_pb2.VerifierGenerateResponse]:
        """Stream what each step commits; a client that goes away cancels the request."""
        if self.draining:
            raise UnavailableError("this verifier is shutting down; try another")
        generation = convert.request_from_wire(
            request, limits=self._speculation.limits, default_rule=self._speculation.default_rule
        )
        if generation.rule not in self._speculation.allowed_rules:
            allowed = ", ".join(self._speculation.allowed_rules)
            raise RefusedError(f"verification rule {generation.rule} is not allowed by this server; allowed: {allowed}")
        span = self._span(request, context)
        generation = dataclasses.replace(generation, traceparent=span.traceparent)
        sink = _QueueSink(asyncio.get_running_loop())
        try:
            key = self._engine.submit(generation, sink)
        except OutriderError as error:
            span.end(type(error).__name__)
            raise
        # Not in a `finally`: a call that is cancelled while gRPC writes never enters this generator again. A finished
        # request is unknown to the engine by then, and that is fine.
        context.add_done_callback(lambda _: self._engine.cancel(key))  # type: ignore[arg-type]  # no function fits the stubs
        context.add_done_callback(lambda _: span.end())  # type: ignore[arg-type]  # as above
        while True:
            item = await sink.queue.get()
            if isinstance(item, OutriderError):
                span.end(type(item).__name__)
                raise item
            if item.stats is not None:
                span.set(finish=str(item.finish_reason), **_told(item.stats))
            yield convert.step_to_wire(item)
            if item.finish_reason is not None:
                return

    async def GetInfo(
        self, request: verifier_pb2.VerifierGetInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> verifier_pb2.VerifierGetInfoResponse:
        """Model, limits and load; UNAVAILABLE when the engine has failed or hangs, so that callers can tell."""
        self._engine.check_health(self._info.config.stuck_after_s)
        return self._info.to_wire(self._engine)

    async def KvEvents(
        self, request: verifier_pb2.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.KvEventsResponse]:
        """A snapshot of the prefix cache or what came after the given number, then changes; with them, the load."""
        with self._engine.events.subscribe(request.incarnation, request.after_sequence_number) as subscription:
            while (batch := await subscription.receive(LOAD_REPORT_S)) is not None:
                yield kv_events_to_wire(batch, self._info.load(self._engine))

    def _span(self, request: verifier_pb2.VerifierGenerateRequest, context: grpc.aio.ServicerContext[Any, Any]) -> Span:
        """Part of the caller's trace, if there is one."""
        if not self._tracer.enabled:
            return NO_SPAN
        headers: Any = context.invocation_metadata() or ()
        parent = next((str(value) for key, value in headers if key == TRACEPARENT), "")
        return self._tracer.start(
            "verifier.generate",
            parent,
            request_id=request.request_id,
            verifier=self._info.verifier_id,
            prompt_tokens=len(request.prompt_token_ids),
            resumed_tokens=len(request.output_token_ids),
        )


def _told(stats: GenerationStats) -> dict[str, int | float]:
    """What a span says of an answer: numbers only."""
    return {
        "queue_ms": stats.queue_ms,
        "time_to_first_token_ms": stats.time_to_first_token_ms,
        "cached_prompt_tokens": stats.cached_prompt_tokens,
        "output_tokens": stats.output_tokens,
        "verify_steps": stats.verify_steps,
        "plain_steps": stats.plain_steps,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "drafter_changes": stats.drafter_changes,
        "preemptions": stats.preemptions,
    }
