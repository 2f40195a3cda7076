"""Policies that look at no cache: for comparison, and where prompts share nothing."""

import numpy as np

from cluster.router.snapshot import Costs, Floats, PoolSnapshot, RequestShape

__all__ = ["ConsistentHash", "LeastLoad", "PowerOfTwo", "RoundRobin"]

FEW = 4  # requests that overload no replica, however idle the others are


class LeastLoad:
    """Requests for each seat."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        return {"load": _load(pool)}


class PowerOfTwo:
    """The less loaded of two that are drawn (Mitzenmacher): nearly as even as `LeastLoad`, without its stampedes."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        count = len(pool)
        first = int(request.draws[0] * count)
        second = int(request.draws[1] * (count - 1))
        drawn = np.full(count, np.inf)
        drawn[[first, second + (second >= first)] if count > 1 else [0]] = 0.0
        return {"drawn": drawn, "load": _load(pool)}


class RoundRobin:
    """The one that was chosen longest ago."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        return {"turn": pool.last_chosen.astype(np.float64)}


class ConsistentHash:
    """Equal sessions (without one: equal beginnings of prompts) to equal replicas, with bounded loads.

    Rendezvous hashing: each replica draws a number from its id and the key, the highest wins, and when a replica comes
    or goes only its own keys move. A replica with more than `max_imbalance` times the mean load is passed over
    (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads").
    """

    def __init__(self, max_imbalance: float = 1.25) -> None:
        self._max_imbalance = max_imbalance

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        drawn = _mixed(pool.identity ^ np.uint64(request.key))
        ranks = np.empty(len(pool))
        ranks[np.argsort(drawn)[::-1]] = np.arange(len(pool))
        bound = max(FEW, np.ceil(self._max_imbalance * (pool.requests.sum() + 1) / len(pool)))
        return {"rank": ranks, "overload": np.where(pool.requests + 1 > bound, float(len(pool)), 0.0)}


def _load(pool: PoolSnapshot) -> Floats:
    return pool.requests / pool.seats


def _mixed(values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
