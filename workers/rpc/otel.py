"""Traces with OpenTelemetry, sent by OTLP over gRPC. Needs the extra `tracing`; loaded only where traces are wanted.

The trace context travels as W3C `traceparent`: in the metadata of gateway and verifier calls, and in each session that
a verifier opens at a drafter. The ready-made gRPC instrumentation cannot do that: many requests share one stream to a
drafter, and its client interceptors lose statuses of streams that break while they are written to.
"""

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span as RecordingSpan
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from workers.core.config import TracingConfig
from workers.core.tracing import TRACEPARENT, Attribute, Span, Tracer

__all__ = ["OtelTracer", "exporting_tracer"]

PREFIX = "outrider."
EXPORT_TIMEOUT_S = 2.0  # retries included; a replica that stops waits no longer for a collector that is away
_W3C = TraceContextTextMapPropagator()


class _OtelSpan(Span):
    def __init__(self, span: RecordingSpan) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(span))
        self.traceparent = carrier.get(TRACEPARENT, "")

    def set(self, **attributes: Attribute) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(PREFIX + name, value)

    def end(self, error: str = "") -> None:
        if not self._span.is_recording():  # over already, or not sampled
            return
        if error:
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end()


class OtelTracer(Tracer):
    """Records a share of the traces that begin here, and whatever belongs to a trace that is recorded."""

    enabled = True

    def __init__(self, service: str, processor: SpanProcessor, sample_ratio: float = 1.0) -> None:
        """`service`: its name in traces; `processor` takes the finished spans."""
        sampler = ParentBased(TraceIdRatioBased(sample_ratio))
        self._provider = TracerProvider(sampler=sampler, resource=Resource.create({"service.name": service}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("outrider")

    def start(self, name: str, parent: str = "", **attributes: Attribute) -> Span:
        context = _W3C.extract({TRACEPARENT: parent})
        span = _OtelSpan(self._tracer.start_span(name, context, kind=SpanKind.SERVER))
        span.set(**attributes)
        return span

    def close(self) -> None:
        self._provider.shutdown()


def exporting_tracer(config: TracingConfig, service: str) -> OtelTracer:
    """Sends to the collector, in batches and from a thread of its own; what does not get there is lost."""
    exporter = OTLPSpanExporter(endpoint=config.endpoint, insecure=not config.tls, timeout=EXPORT_TIMEOUT_S)
    return OtelTracer(service, BatchSpanProcessor(exporter), config.sample_ratio)
