"""The interface of routing policies, what is checked of them, and the pick that they share."""

from collections.abc import Mapping
from functools import reduce
from typing import Protocol, cast

import numpy as np

from cluster.router.snapshot import Costs, Floats, Ints, PoolSnapshot, RequestShape
from workers.core.errors import InternalError

__all__ = ["RoutingPolicy", "cheapest_first", "checked"]

REAL = "fiu"  # kinds of dtypes: floats and integers

RESOLUTION = 1e-3  # smaller differences are none: the replica that was chosen longest ago goes first


class RoutingPolicy(Protocol):
    """A pure function; the same object serves all requests of a pool."""

    def costs(self, request: RequestShape, pool: PoolSnapshot) -> Costs:
        """At least one term. `pool` has at least one replica; infinite terms exclude some of them, or all drafters."""
        ...


def checked(costs: object, replicas: int, policy: str) -> tuple[Costs, Floats]:
    """What the policy of this name returned, as float64, and the sum, [replicas].

    `InternalError` when it is not what `RoutingPolicy` says.
    """
    problem = _problem_of_form(costs, replicas)
    if not problem:
        terms = {name: np.asarray(term, dtype=np.float64) for name, term in cast(Costs, costs).items()}
        try:
            with np.errstate(over="raise", invalid="ignore"):  # the latter: inf - inf, which is found below
                total: Floats = reduce(np.add, terms.values())  # np.sum would stack them first
            if (total > -np.inf).all():  # not for NaN either; one look at the sum instead of one at each term
                return terms, total
            bad = next(name for name, term in terms.items() if not (term > -np.inf).all())
            problem = f"term {bad!r} holds NaN or -inf"
        except FloatingPointError:
            problem = "the sum of its terms overflows"
    raise InternalError(
        f"routing policy {policy}: {problem}; expected: terms by name, at least one, each an array of shape "
        f"({replicas},) of floats that are finite or +inf (which excludes a replica)"
    )


def _problem_of_form(costs: object, replicas: int) -> str:
    """ "" when there is none."""
    if not isinstance(costs, Mapping):
        return f"it returned a {type(costs).__name__}"
    for name, term in costs.items():
        if not isinstance(name, str):
            return f"the name {name!r} is a {type(name).__name__}"
        if not isinstance(term, np.ndarray):
            return f"term {name!r} is a {type(term).__name__}"
        if term.shape != (replicas,) or term.dtype.kind not in REAL:
            return f"term {name!r} is an array of shape {term.shape} of {term.dtype}"
    return "" if costs else "it returned no term"


def cheapest_first(total: Floats, last_chosen: Ints) -> Ints:
    """Indices of the replicas that may be chosen, best first."""
    with np.errstate(over="ignore"):  # what is that large is equal
        order = np.lexsort((last_chosen, np.round(total / RESOLUTION)))
    return order[np.isfinite(total[order])]
