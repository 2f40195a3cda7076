"""The default policy: the replica where the first token is expected soonest, as its load and memory allow."""

from collections.abc import Mapping

from cluster.router.policies.scorers import Scorer
from cluster.router.snapshot import Costs, PoolSnapshot, RequestShape

__all__ = ["KvAware"]


class KvAware:
    """A weighted blend of scorers, in milliseconds."""

    def __init__(self, scorers: Mapping[str, tuple[float, Scorer]]) -> None:
        """Name -> weight and scorer; those without weight are left out."""
        self._scorers = {name: pair for name, pair in scorers.items() if pair[0] > 0.0}

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        return {name: weight * scorer(request, pool) for name, (weight, scorer) in self._scorers.items()}
