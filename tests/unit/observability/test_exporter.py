"""The exporter passes on what changed, and nothing that goes wrong gets out of it."""

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.observability.exporter import MetricsExporter
from cluster.observability.metric import Kind, Metric
from workers.core.readings import MAX_OBSERVATIONS, Observations, Readings

COUNTER = Metric("made", Kind.COUNTER, "things", ("gateway",), "Things made")
BY_KIND = Metric("sold", Kind.COUNTER, "things", ("gateway",), "Things sold", "kind")
GAUGE = Metric("there", Kind.GAUGE, "things", ("gateway",), "Things there", "place")
HISTOGRAM = Metric("took_seconds", Kind.HISTOGRAM, "seconds", ("gateway",), "Time", "", (1.0, 2.0))
ALL = (COUNTER, BY_KIND, GAUGE, HISTOGRAM)


@dataclass
class Recorder:
    """An instrument, and all that it was told."""

    name: str
    totals: dict[str, float] = field(default_factory=dict)
    level: dict[str, float] = field(default_factory=dict)
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, amount: float, label: str) -> None:
        if amount < 0:
            raise ValueError("counters do not fall")
        self.totals[label] = self.totals.get(label, 0.0) + amount

    def set(self, value: float, label: str) -> None:
        self.level[label] = value

    def observe(self, value: float, label: str) -> None:
        self.values[label].append(value)


@dataclass
class Replica:
    """Something to read, and its instruments."""

    made: float = 0
    sold: dict[str, float] = field(default_factory=dict)
    there: dict[str, float] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    broken: Exception | None = None
    refused: str = ""  # a metric that cannot be made
    instruments: dict[str, Recorder] = field(default_factory=dict)

    def read(self) -> Readings:
        if self.broken is not None:
            raise self.broken
        took, self.took = self.took, []
        return Readings({"made": self.made, "sold": dict(self.sold)}, {"there": self.there}, {"took_seconds": took})

    def make(self, metric: Metric) -> Recorder:
        if metric.name == self.refused:
            raise RuntimeError("no such thing")
        return self.instruments.setdefault(metric.name, Recorder(metric.name))

    def exporter(self) -> MetricsExporter:
        return MetricsExporter(ALL, self.make, self.read)


def test_differences_levels_and_observations() -> None:
    replica = Replica(made=3, there={"here": 2}, took=[0.5])
    exporter = replica.exporter()
    exporter.tick()
    replica.made, replica.sold, replica.there, replica.took = 7, {"red": 2}, {"here": 0, "there": 9}, [1.5, 3.0]
    exporter.tick()
    told = replica.instruments
    assert told["made"].totals == {"": 7}
    assert told["sold"].totals == {"red": 2}
    assert told["there"].level == {"here": 0, "there": 9}
    assert told["took_seconds"].values == {"": [0.5, 1.5, 3.0]}


def test_a_total_of_0_is_made_known_once() -> None:
    """Or a rate would not see the first rise."""
    replica = Replica(sold={"red": 0})
    exporter = replica.exporter()
    exporter.tick()
    assert replica.instruments["made"].totals == {"": 0.0}
    assert replica.instruments["sold"].totals == {"red": 0.0}


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20))
def test_what_fails_is_made_up_for(steps: list[tuple[int, bool]]) -> None:
    """However readings fail in between: after one that succeeds, the total is right."""
    replica = Replica()
    exporter = replica.exporter()
    for grown, fails in steps:
        replica.made += grown
        replica.broken = OSError("gone") if fails else None
        exporter.tick()
    replica.broken = None
    exporter.tick()
    assert replica.instruments["made"].totals[""] == replica.made


def test_a_failure_is_logged_once_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(broken=KeyError("a prompt"))
    exporter = replica.exporter()
    with caplog.at_level(logging.ERROR):
        exporter.tick()
        exporter.tick()
    assert len(caplog.records) == 1
    assert "KeyError" in caplog.text
    assert "a prompt" not in caplog.text


def test_a_metric_that_cannot_be_exported_does_not_hinder_others(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(made=1, refused="sold", took=[1.0])
    replica.exporter().tick()
    assert replica.instruments["made"].totals == {"": 1}
    assert replica.instruments["took_seconds"].values == {"": [1.0]}
    assert "sold" in caplog.text


def test_a_label_that_cannot_be_exported_does_not_hinder_others(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(sold={"a": 1, "bad": -1, "z": 2})
    exporter = replica.exporter()
    exporter.tick()
    replica.sold["z"] = 3
    exporter.tick()
    assert replica.instruments["sold"].totals == {"a": 1, "z": 3}
    assert "sold" in caplog.text


def test_a_reading_without_a_metric_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    MetricsExporter(ALL, Replica().make, lambda: Readings({}, {})).tick()
    assert all(metric.name in caplog.text for metric in ALL)


def test_the_thread_ends_and_takes_the_last_counts_along() -> None:
    replica = Replica(made=1)
    exporter = replica.exporter()
    exporter.start()
    replica.made = 5
    exporter.stop()
    assert replica.instruments["made"].totals == {"": 5}
    assert "outrider-metrics" not in {thread.name for thread in threading.enumerate()}


def test_stop_does_not_wait_for_one_that_was_never_started() -> None:
    Replica().exporter().stop()


def test_observations_are_bounded_and_say_what_they_lost() -> None:
    seen = Observations(limit=3)
    for value in range(5):
        seen.add(value)
    assert seen.take() == [2, 3, 4]
    assert seen.dropped == 2
    seen.add(9)
    assert (seen.take(), seen.take(), seen.dropped) == ([9], [], 2)
    assert MAX_OBSERVATIONS > 1000


@given(st.lists(st.integers(0, 8), max_size=30))
def test_every_observation_is_taken_or_counted(bursts: list[int]) -> None:
    seen, taken, added = Observations(limit=4), 0, 0
    for burst in bursts:
        for _ in range(burst):
            seen.add(1.0)
        added += burst
        taken += len(seen.take())
        assert taken + seen.dropped == added


def test_observations_of_one_thread_taken_by_another() -> None:
    seen, total = Observations(limit=64), 20_000
    writer = threading.Thread(target=lambda: [seen.add(1.0) for _ in range(total)] and None)
    writer.start()
    taken = 0
    while writer.is_alive():
        taken += len(seen.take())
    writer.join()
    taken += len(seen.take())
    assert taken + seen.dropped == total
