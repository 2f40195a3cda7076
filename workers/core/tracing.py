"""Traces, as the rest of the code sees them: nothing here knows OpenTelemetry, and without it nothing happens.

`workers.rpc.otel` has the tracer that records. Spans are made for each request, never for each step or token.
"""

__all__ = ["NO_SPAN", "NO_TRACER", "TRACEPARENT", "Attribute", "Span", "Tracer"]

TRACEPARENT = "traceparent"  # W3C trace context: the name of the header, and of the field in docs/protocol.md

Attribute = str | int | float | bool


class Span:
    """One piece of work; this one records nothing. `set` and `end` never raise and may come from any thread."""

    traceparent = ""  # for those who go on with the work elsewhere

    def set(self, **attributes: Attribute) -> None:
        """Add what is known by now. Never request content."""

    def end(self, error: str = "") -> None:
        """It is over; a second time has no effect. `error`: the class of what ended it, never its text."""


class Tracer:
    """Makes spans; this one makes none."""

    enabled = False

    def start(self, name: str, parent: str = "", **attributes: Attribute) -> Span:
        """`parent`: the traceparent of what it belongs to; anything that is none begins a trace of its own."""
        return NO_SPAN

    def close(self) -> None:
        """Send what was not sent yet."""


NO_SPAN = Span()
NO_TRACER = Tracer()
