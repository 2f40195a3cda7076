"""What one metric is. Everything else that is said of it anywhere follows from this."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = ["PREFIX", "Kind", "Metric", "Pool"]

PREFIX = "outrider_"
RAY_PREFIX = "ray_"  # Ray puts it in front of all names

Pool = Literal["gateway", "verifier", "drafter"]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """`name` is that of the reading it comes from (`workers.core.readings`), and lacks prefix and `_total`."""

    name: str
    kind: Kind
    unit: str
    pools: tuple[Pool, ...]  # which replicas export it; their deployment is a label of Ray's
    help: str
    label: str = ""  # at most one of our own
    buckets: tuple[float, ...] = ()  # upper bounds, above 0; of a histogram

    @property
    def registered(self) -> str:
        """As Ray is told."""
        return PREFIX + self.name

    @property
    def exported(self) -> str:
        """As Prometheus sees it; of a histogram, what its series begin with."""
        return RAY_PREFIX + self.registered + ("_total" if self.kind is Kind.COUNTER else "")

    @property
    def series(self) -> tuple[str, ...]:
        """All names that may stand in an expression."""
        if self.kind is not Kind.HISTOGRAM:
            return (self.exported,)
        return tuple(f"{self.exported}_{part}" for part in ("bucket", "sum", "count"))
