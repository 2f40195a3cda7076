"""Ray's metrics API behind the exporter. Ray adds the labels deployment, replica and application, and a node's."""

from collections.abc import Callable

import ray
from ray.serve import metrics as serve_metrics

from cluster.observability.definitions import metrics_of
from cluster.observability.exporter import MetricsExporter
from cluster.observability.metric import Kind, Metric, Pool
from workers.core.readings import Readings

__all__ = ["RayInstrument", "export_to_ray"]


class RayInstrument:
    """An `Instrument`."""

    def __init__(self, metric: Metric) -> None:
        labels = (metric.label,) if metric.label else None
        self._label = metric.label
        common = {"description": f"{metric.help} [{metric.unit}]", "tag_keys": labels}
        if metric.kind is Kind.HISTOGRAM:
            self._metric = serve_metrics.Histogram(metric.registered, boundaries=list(metric.buckets), **common)
        elif metric.kind is Kind.COUNTER:
            self._metric = serve_metrics.Counter(metric.registered, **common)
        else:
            self._metric = serve_metrics.Gauge(metric.registered, **common)

    def add(self, amount: float, label: str) -> None:
        """Ray's `inc` takes no 0; what is exported from the start can be seen to rise later."""
        if amount > 0:
            self._metric.inc(amount, self._tags(label))
        else:
            self._metric._record(0.0, self._tags(label))

    def set(self, value: float, label: str) -> None:
        self._metric.set(value, self._tags(label))

    def observe(self, value: float, label: str) -> None:
        self._metric.observe(value, self._tags(label))

    def _tags(self, label: str) -> dict[str, str] | None:
        return {self._label: label} if self._label else None


def export_to_ray(pool: Pool, read: Callable[[], Readings]) -> MetricsExporter | None:
    """A running exporter of this replica; None outside Ray, where nobody would collect."""
    if not ray.is_initialized():
        return None
    exporter = MetricsExporter(metrics_of(pool), RayInstrument, read)
    exporter.start()
    return exporter
