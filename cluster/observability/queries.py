"""PromQL out of the table of metrics: a name that is not in it cannot be written."""

from cluster.observability.definitions import METRICS
from cluster.observability.metric import Kind

__all__ = ["average", "growth", "level", "percentile", "per_second", "ratio"]

_BY_NAME = {metric.name: metric for metric in METRICS}


def _of(name: str, kind: Kind) -> str:
    metric = _BY_NAME.get(name)
    if metric is None or metric.kind is not kind:
        raise ValueError(f"{name!r} is no {kind} of cluster.observability.definitions")
    return metric.exported


def per_second(name: str, by: str, where: str = "", window: str = "5m") -> str:
    """How fast a counter grows, summed over replicas. `by`: labels that stay; `where`: matchers."""
    return f"sum by ({by}) (rate({_of(name, Kind.COUNTER)}{_braces(where)}[{window}]))"


def growth(name: str, by: str, where: str = "", window: str = "10m") -> str:
    """By how much a counter grew, summed over replicas."""
    return f"sum by ({by}) (increase({_of(name, Kind.COUNTER)}{_braces(where)}[{window}]))"


def level(name: str, by: str, where: str = "", how: str = "sum") -> str:
    """A gauge, put together by sum, max, min or avg."""
    return f"{how} by ({by}) ({_of(name, Kind.GAUGE)}{_braces(where)})"


def ratio(above: str, below: str) -> str:
    """Nothing where there is nothing to divide by, which is no 0."""
    return f"{above} / ({below} > 0)"


def percentile(name: str, share: float, by: str, where: str = "", window: str = "5m") -> str:
    """Of a histogram, in its unit."""
    buckets = f"rate({_of(name, Kind.HISTOGRAM)}_bucket{_braces(where)}[{window}])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def average(name: str, by: str, where: str = "", window: str = "5m") -> str:
    """Of a histogram. Ray counts each value as the middle of its bucket."""
    total, count = (f"rate({_of(name, Kind.HISTOGRAM)}_{part}{_braces(where)}[{window}])" for part in ("sum", "count"))
    return ratio(f"sum by ({by}) ({total})", f"sum by ({by}) ({count})")


def _braces(where: str) -> str:
    return f"{{{where}}}" if where else ""
