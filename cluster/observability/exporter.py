"""Carries what a replica counts to whoever scrapes it: about once a second, in a thread of its own.

Nothing here can raise into serving, and nothing waits for it. A reading that fails is logged once for its kind and
tried again a second later; totals that could not be passed on then are part of the next difference.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from cluster.observability.metric import Kind, Metric
from workers.core.private_log import summary
from workers.core.readings import Readings

__all__ = ["EXPORT_S", "Instrument", "MetricsExporter"]

EXPORT_S = 1.0
STOP_S = 5.0

logger = logging.getLogger(__name__)


class Instrument(Protocol):
    """One metric of the system that exports. `label`: the value of the metric's own label, "" without one."""

    def add(self, amount: float, label: str) -> None:
        """Of a counter; 0 makes it known."""
        ...

    def set(self, value: float, label: str) -> None: ...

    def observe(self, value: float, label: str) -> None: ...


class MetricsExporter:
    """`start` it, `stop` it; tests call `tick`."""

    def __init__(
        self, metrics: Sequence[Metric], make: Callable[[Metric], Instrument], read: Callable[[], Readings]
    ) -> None:
        """`make` and `read` are called in the exporter's thread. `read` must come up with every metric."""
        self._metrics = metrics
        self._make = make
        self._read = read
        self._instruments: dict[str, Instrument] = {}
        self._passed_on: dict[tuple[str, str], float] = {}  # totals by metric and label
        self._told: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outrider-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Once more, then no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def tick(self) -> None:
        """Read and pass on. Never raises."""
        try:
            readings = self._read()
        except Exception as error:  # noqa: BLE001  # whatever it is: serving goes on
            self._tell_once("reading the metrics failed", error)
            return
        for metric in self._metrics:
            self._guarded(metric, partial(self._pass_on, metric, readings))

    def _run(self) -> None:
        while not self._stop.wait(EXPORT_S):
            self.tick()
        self.tick()

    def _guarded(self, metric: Metric, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # as above, and other metrics and labels are worth having
            self._tell_once(f"the metric {metric.name} is not exported", error)

    def _pass_on(self, metric: Metric, readings: Readings) -> None:
        instrument = self._instruments.get(metric.name)
        if instrument is None:
            instrument = self._instruments[metric.name] = self._make(metric)
        match metric.kind:
            case Kind.COUNTER:
                for label, total in _by_label(readings.totals[metric.name]):
                    self._guarded(metric, partial(self._count, instrument, metric.name, label, total))
            case Kind.GAUGE:
                for label, value in _by_label(readings.levels[metric.name]):
                    self._guarded(metric, partial(instrument.set, value, label))
            case Kind.HISTOGRAM:
                observed = readings.observed[metric.name]
                series = observed.items() if isinstance(observed, Mapping) else [("", observed)]
                for label, values in series:
                    for value in values:
                        self._guarded(metric, partial(instrument.observe, value, label))

    def _count(self, instrument: Instrument, name: str, label: str, total: float) -> None:
        before = self._passed_on.get((name, label))
        if before is None or total > before:
            instrument.add(total - (before or 0.0), label)
            self._passed_on[name, label] = total

    def _tell_once(self, text: str, error: Exception) -> None:
        line = f"{text}: {summary(error)}"
        if line not in self._told:
            self._told.add(line)
            logger.error(line)


def _by_label(value: float | Mapping[str, float]) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [(label, float(one)) for label, one in value.items()]
    return [("", float(value))]
