"""The interface of routing policies, and the pick that they share."""

from functools import reduce
from typing import Protocol

import numpy as np

from cluster.router.snapshot import Costs, Floats, Ints, PoolSnapshot, RequestShape

__all__ = ["RoutingPolicy", "cheapest_first", "total_of"]

RESOLUTION = 1e-3  # smaller differences are none: the replica that was chosen longest ago goes first


class RoutingPolicy(Protocol):
    """A pure function; the same object serves all requests of a pool."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        """At least one term. `pool` has at least one replica; infinite terms exclude some, never all."""
        ...


def total_of(costs: Costs) -> Floats:
    """[replicas]"""
    total: Floats = reduce(np.add, costs.values()).astype(np.float64, copy=False)  # np.sum would stack them first
    return total


def cheapest_first(total: Floats, last_chosen: Ints) -> Ints:
    """Indices of the replicas that may be chosen, best first."""
    order = np.lexsort((last_chosen, np.round(total / RESOLUTION)))
    return order[np.isfinite(total[order])]
