"""What one gateway counts, and the one line that it logs for each request. Numbers and names, never content."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from outrider.v1 import generation_pb2 as pb

from cluster.router.decision import Decision, PoolName
from workers.core.readings import Observations, Readings
from workers.core.request import FinishReason
from workers.core.tracing import NO_SPAN, Span
from workers.rpc import convert
from workers.rpc.errors import code_of

__all__ = ["CLIENT_GONE", "GatewayMeter", "RequestRecord"]

OK = "ok"
CLIENT_GONE = "client_gone"
OUTCOMES = (OK, CLIENT_GONE, *(code.name.lower() for code in grpc.StatusCode if code is not grpc.StatusCode.OK))
POOLS: tuple[PoolName, ...] = ("verifier", "drafter")

_log = logging.getLogger(__name__)


@dataclass
class RequestRecord:
    """What is known of one request so far; filled by the service on the way."""

    started_at: float  # on the meter's clock
    span: Span = NO_SPAN
    request_id: str = ""  # "" until it was admitted
    tenant: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_prompt_tokens: int = 0
    first_token_at: float | None = None


@dataclass
class _Routed:
    """Choices for one pool."""

    decisions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of these, where the chosen replica was believed to have them
    seconds: Observations = field(default_factory=Observations)


class GatewayMeter:
    """Belongs to the gateway's event loop; `readings` may be called by one other thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._ended = dict.fromkeys(map(str, FinishReason), 0)
        self._running = 0
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._cached_tokens = 0
        self._lost_verifiers = 0
        self._first_token_s, self._request_s = Observations(), Observations()
        self._routed: dict[PoolName, _Routed] = {name: _Routed() for name in POOLS}

    @contextmanager
    def request(self, span: Span = NO_SPAN) -> Iterator[RequestRecord]:
        """Around one request, from the first look at it to its last message, however it ends."""
        record = RequestRecord(self._clock(), span)
        self._running += 1
        outcome, error_name = OK, ""
        try:
            yield record
        except (asyncio.CancelledError, GeneratorExit):
            outcome = CLIENT_GONE
            raise
        except Exception as error:
            outcome, error_name = code_of(error).name.lower(), type(error).__name__
            raise
        finally:
            self._running -= 1
            self._end(record, outcome, error_name)

    def sent(self, record: RequestRecord, response: pb.GenerateResponse) -> None:
        """One message to the client."""
        tokens = len(response.delta.token_ids)
        if tokens:
            record.output_tokens += tokens
            self._output_tokens += tokens
            if record.first_token_at is None:
                record.first_token_at = self._clock()
                self._first_token_s.add(record.first_token_at - record.started_at)
        elif response.HasField("finished"):
            reason = convert.finish_reason_from_wire(response.finished.finish_reason)
            if reason is not None:
                self._ended[reason] += 1
            cached = response.finished.stats.cached_prompt_tokens
            record.cached_prompt_tokens += cached
            self._cached_tokens += cached

    def admitted(self, record: RequestRecord, request_id: str, prompt_tokens: int) -> None:
        record.request_id, record.prompt_tokens = request_id, prompt_tokens
        record.span.set(request_id=request_id, prompt_tokens=prompt_tokens)
        self._prompt_tokens += prompt_tokens

    def routed(self, decision: Decision) -> None:
        """A replica was chosen."""
        pool = self._routed[decision.pool]
        pool.decisions += 1
        pool.prompt_tokens += decision.prompt_tokens
        pool.cached_tokens += decision.candidates[0].cached_tokens
        pool.seconds.add(decision.decision_ms / 1e3)

    def lost_verifier(self) -> None:
        """An answer lost its verifier, or was not taken by it, and goes on elsewhere if it can."""
        self._lost_verifiers += 1

    def readings(self, replicas: dict[str, int]) -> Readings:
        """`replicas`: how many of each pool are known to live."""
        routed = self._routed
        meters = [self._first_token_s, self._request_s, *(one.seconds for one in routed.values())]
        observed: dict[str, Sequence[float] | Mapping[str, Sequence[float]]] = {
            "gateway_time_to_first_token_seconds": self._first_token_s.take(),
            "gateway_request_seconds": self._request_s.take(),
            "routing_decision_seconds": {name: one.seconds.take() for name, one in routed.items()},
        }
        return Readings(
            totals={
                "gateway_requests": dict(self._outcomes),
                "gateway_answers_ended": dict(self._ended),
                "gateway_prompt_tokens": self._prompt_tokens,
                "gateway_output_tokens": self._output_tokens,
                "gateway_cached_prompt_tokens": self._cached_tokens,
                "gateway_lost_verifiers": self._lost_verifiers,
                "routing_decisions": {name: one.decisions for name, one in routed.items()},
                "routing_prompt_tokens": {name: one.prompt_tokens for name, one in routed.items()},
                "routing_expected_hit_tokens": {name: one.cached_tokens for name, one in routed.items()},
                "metrics_dropped_observations": sum(one.dropped for one in meters),
            },
            levels={"gateway_requests_running": self._running, "routing_replicas": dict(replicas)},
            observed=observed,
        )

    def _end(self, record: RequestRecord, outcome: str, error_name: str) -> None:
        now = self._clock()
        self._outcomes[outcome] += 1
        self._request_s.add(now - record.started_at)
        first = record.first_token_at
        known: dict[str, str | int | float] = {
            "outcome": outcome,
            "output_tokens": record.output_tokens,
            "cached_prompt_tokens": record.cached_prompt_tokens,
            "time_to_first_token_ms": -1.0 if first is None else round(1e3 * (first - record.started_at), 3),
            "total_ms": round(1e3 * (now - record.started_at), 3),
        }
        record.span.set(**known)
        record.span.end(error_name)
        _log.info(
            "request %r: %s, %d prompt and %d output tokens in %.0f ms",
            record.request_id,
            outcome,
            record.prompt_tokens,
            record.output_tokens,
            known["total_ms"],
            extra={
                "outrider_request_id": record.request_id,
                "tenant": record.tenant,
                "prompt_tokens": record.prompt_tokens,
                "trace_id": record.span.traceparent[3:35],
                **known,
            },
        )
