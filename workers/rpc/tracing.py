"""The tracer of a process, as its settings want it. OpenTelemetry is imported only where traces are wanted."""

from workers.core.config import RpcConfig
from workers.core.errors import ConfigurationError
from workers.core.tracing import NO_TRACER, Tracer

__all__ = ["tracer_of"]


def tracer_of(config: RpcConfig, service: str) -> Tracer:
    """`service`: its name in traces. `ConfigurationError` when OpenTelemetry is wanted and not installed."""
    if config.tracing is None:
        return NO_TRACER
    try:
        from workers.rpc.otel import exporting_tracer
    except ImportError as error:
        raise ConfigurationError(
            f"tracing: {error.name} is not installed; install outrider-server[tracing], or remove tracing"
        ) from None
    return exporting_tracer(config.tracing, service)
