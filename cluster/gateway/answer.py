"""One answer: runs it on a verifier, and goes on with another one when that is lost."""

import logging
from collections import ChainMap
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias, cast

import grpc
from outrider.v1 import common_pb2, generation_pb2, verifier_pb2

from cluster.config.gateway import GatewayConfig
from cluster.gateway.admission import AdmittedRequest
from cluster.gateway.answer_stats import AnswerStats
from cluster.gateway.meter import GatewayMeter
from cluster.gateway.progress import AnswerProgress, Ending
from cluster.gateway.replica_pool import ReplicaPool
from cluster.gateway.stall import StalledError, StallWatch
from cluster.router.decision import RoutedRequest
from cluster.router.membership import ReplicaRecord
from cluster.router.replica_table import key_of
from workers.core.errors import AuthenticationError, DeadlineError, InternalError, OverloadedError, UnavailableError
from workers.core.request import DrafterEndpoint, FinishReason
from workers.core.tracing import NO_TRACER, TRACEPARENT, Tracer
from workers.rpc import convert
from workers.rpc.errors import from_rpc_error

__all__ = ["Answer", "AnswerContext"]

# The verifier, or the way to it, is gone: the answer goes on elsewhere. Everything else would fail there as well.
LOST = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DATA_LOSS,
    }
)
AVOID_LOST_S = 1.0  # a dead replica has left the directory by then; one that lives deserves another try
DEADLINE_GRACE_S = 0.5  # the verifier ends an answer in time itself; this is for one that does not

_log = logging.getLogger(__name__)

VerifierMessage = verifier_pb2.VerifierGenerateResponse
VerifierCall: TypeAlias = "grpc.aio.UnaryStreamCall[verifier_pb2.VerifierGenerateRequest, VerifierMessage]"


class _VerifierLostError(Exception):
    """This verifier cannot go on with the answer; another may."""


@dataclass(frozen=True)
class AnswerContext:
    """What all answers of one request share."""

    request: AdmittedRequest
    pool: ReplicaPool
    watch: StallWatch
    config: GatewayConfig
    tokenizer_hash: str
    clock: Callable[[], float]
    deadline_at: float | None  # on the clock
    meter: GatewayMeter
    tracer: Tracer = NO_TRACER
    traceparent: str = ""  # of the whole request

    def remaining_s(self) -> float | None:
        return None if self.deadline_at is None else self.deadline_at - self.clock()


class Answer:
    """Streams the messages of answer `index`: deltas, then one `finished`."""

    def __init__(self, context: AnswerContext, index: int, seed: int, progress: AnswerProgress) -> None:
        self._context = context
        self._index = index
        self._seed = seed
        self._progress = progress
        self._stats = AnswerStats(
            context.clock,
            prompt_tokens=len(context.request.prompt_token_ids),
            seed=seed,
            resumed_tokens=progress.resumed_tokens,
        )
        self._avoid_until: dict[tuple[str, int], float] = {}
        self._fingerprint: str | None = None  # of the model that wrote the tokens so far

    async def messages(self) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Raises what a verifier refuses the request with; `UnavailableError` when none is left."""
        progress = self._progress
        if progress.resumed_text:
            yield self._delta((), progress.resumed_text, ())
        last: _VerifierLostError | None = None
        for _ in range(self._context.config.max_attempts):
            if progress.ending is not None:
                break
            try:
                async with aclosing(self._attempt()) as deltas:
                    async for delta in deltas:
                        yield delta
            except _VerifierLostError as lost:
                last = lost
                self._context.meter.lost_verifier()
        if progress.ending is None:
            attempts = self._context.config.max_attempts
            raise UnavailableError(f"gave up after {attempts} verifiers; the last one: {last}") from last
        tail = progress.finish()
        if tail:
            yield self._delta((), tail, ())
        yield self._finished(progress.ending)

    async def _attempt(self) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Run on one verifier until the answer ends; `_VerifierLostError` when it is lost on the way."""
        routed = self._routed()
        verifier = await self._choose(routed)
        if verifier is None:
            self._progress.ending = Ending(FinishReason.DEADLINE)
            return
        pool = self._context.pool
        wanted = self._context.config.drafters_per_request
        with pool.occupied(verifier), pool.drafters(routed, self._context.tokenizer_hash, wanted) as drafters:
            span = self._context.tracer.start(
                "gateway.attempt", self._context.traceparent, index=self._index, verifier=verifier.replica_id
            )
            headers = ((TRACEPARENT, span.traceparent),) if span.traceparent else None
            call = pool.stub(verifier).Generate(self._submission(drafters), metadata=headers)
            try:
                while self._progress.ending is None:
                    message = await self._read(call, verifier)
                    self._fingerprint = verifier.model_fingerprint
                    delta = self._take(message) if message is not None else None
                    if delta is not None:
                        yield delta
            except grpc.aio.AioRpcError as error:
                span.end(error.code().name)
                self._failed(verifier, error)
            finally:
                call.cancel()  # no effect on one that has ended
                span.end()
                self._stats.lost()

    def _routed(self) -> RoutedRequest:
        request, done = self._context.request, self._progress.token_ids
        return RoutedRequest(
            request_id=request.request_id,
            token_ids=(*request.prompt_token_ids, *done),
            output_tokens=request.max_tokens - len(done),
            cache_salt=request.cache_salt,
            session_id=request.session_id,
            index=self._index,
        )

    async def _choose(self, routed: RoutedRequest) -> ReplicaRecord | None:
        """A verifier; None when the deadline passes while there is none."""
        wait_s = self._context.config.replica_wait_ms / 1e3
        remaining_s = self._context.remaining_s()
        in_time = remaining_s is None or remaining_s > wait_s
        verifier = await self._context.pool.verifier(
            routed,
            self._avoided(),
            wait_s if in_time or remaining_s is None else max(0.0, remaining_s),
            self._fingerprint,
        )
        if verifier is None and in_time:
            kind = "" if self._fingerprint is None else " that runs the model which began the answer"
            raise UnavailableError(f"no verifier{kind} is available (waited {wait_s:g} s); try again later")
        return verifier

    async def _read(self, call: VerifierCall, verifier: ReplicaRecord) -> VerifierMessage | None:
        """The next message; None when the deadline passed and the verifier has not noticed."""
        remaining_s = self._context.remaining_s()
        timeout_s = None if remaining_s is None else max(0.0, remaining_s) + DEADLINE_GRACE_S
        try:
            message = await self._context.watch.read(call, verifier, timeout_s)
        except TimeoutError:
            self._progress.ending = Ending(FinishReason.DEADLINE)
            return None
        except StalledError as error:
            self._avoid(verifier)
            raise _VerifierLostError(str(error)) from error
        if isinstance(message, VerifierMessage):
            return message
        self._avoid(verifier)
        raise _VerifierLostError(f"{verifier.replica_id} ended its stream too early")

    def _take(self, message: VerifierMessage) -> generation_pb2.GenerateResponse | None:
        """Commit what one step brought; the delta for the client, if there is one."""
        used, text = self._progress.push(message.token_ids)
        self._stats.received(len(used))
        if message.HasField("stats"):
            self._stats.reported(convert.stats_from_wire(message.stats))
        reason = convert.finish_reason_from_wire(message.finish_reason)
        if reason is not None:
            self._progress.ending = self._progress.ending or Ending(reason, message.stop_string)
        return self._delta(used, text, message.logprobs[: len(used)]) if used or text else None

    def _failed(self, verifier: ReplicaRecord, error: grpc.aio.AioRpcError) -> None:
        """Decide about an RPC that failed: raises unless the deadline explains it."""
        mapped = from_rpc_error(error)
        if isinstance(mapped, DeadlineError):
            self._progress.ending = Ending(FinishReason.DEADLINE)
            return
        if isinstance(mapped, AuthenticationError):  # not the client's credentials: ours
            _log.error("verifier %s does not accept this gateway's internal token", verifier.replica_id)
            raise InternalError("the server's own parts do not trust each other; its log says more") from None
        if error.code() in LOST and not _is_fault_of_request(error):
            self._avoid(verifier)
        elif isinstance(mapped, OverloadedError):
            self._avoid(verifier)
            if not self._context.pool.candidates(self._avoided()):
                raise mapped from error
        else:
            raise mapped from error
        raise _VerifierLostError(f"{verifier.replica_id} failed with {error.code().name}") from error

    def _avoided(self) -> Mapping[tuple[str, int], float]:
        """What gives no sign of life to anybody, and what this answer has lost; a live view."""
        suspects = cast(dict[tuple[str, int], float], self._context.watch.suspects)  # read only
        return ChainMap(suspects, self._avoid_until)

    def _avoid(self, verifier: ReplicaRecord) -> None:
        self._avoid_until[key_of(verifier)] = self._context.clock() + AVOID_LOST_S

    def _submission(self, drafters: tuple[ReplicaRecord, ...]) -> verifier_pb2.VerifierGenerateRequest:
        request = self._context.request
        remaining_s = self._context.remaining_s()
        return verifier_pb2.VerifierGenerateRequest(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=self._progress.token_ids,
            sampling=convert.sampling_to_wire(request.sampling.model_copy(update={"n": 1, "seed": self._seed})),
            speculation=convert.speculation_to_wire(request.speculation),
            seed=self._seed,
            cache_salt=request.cache_salt,
            deadline_ms=0 if remaining_s is None else max(1, round(1e3 * remaining_s)),
            drafters=[_endpoint(drafter) for drafter in drafters],
            priority=request.priority,
            tenant=request.tenant.name,
            tenant_weight=request.tenant.weight,
        )

    def _delta(
        self, token_ids: Sequence[int], text: str, logprobs: Sequence[common_pb2.TokenLogprob]
    ) -> generation_pb2.GenerateResponse:
        delta = generation_pb2.GenerationDelta(
            index=self._index,
            token_ids=token_ids,
            text=text,
            logprobs=logprobs,
            offset=len(self._progress.token_ids) - len(token_ids),  # they are committed already
        )
        return generation_pb2.GenerateResponse(delta=delta)

    def _finished(self, ending: Ending) -> generation_pb2.GenerateResponse:
        stats = self._stats.result(len(self._progress.token_ids))
        return generation_pb2.GenerateResponse(
            finished=generation_pb2.GenerationFinished(
                index=self._index,
                finish_reason=convert.finish_reason_to_wire(ending.reason),
                stop_string=ending.stop_string,
                stats=convert.stats_to_wire(stats),
            )
        )


def _endpoint(drafter: ReplicaRecord) -> verifier_pb2.DrafterEndpoint:
    return convert.endpoint_to_wire(DrafterEndpoint(drafter.replica_id, drafter.address, drafter.incarnation))


def _is_fault_of_request(error: grpc.aio.AioRpcError) -> bool:
    """Whether a living verifier says that this very request failed in it: it would fail in the next one as well."""
    return (error.details() or "").startswith(f"{InternalError.__name__}: ")
