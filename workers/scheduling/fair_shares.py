"""Who is next: virtual token counters, one for each tenant.

Each tenant has a counter of the tokens that it was served, divided by its weight; of the tenants that wait, the one
with the smallest counter is next. A tenant that comes back after a pause is lifted to the level of those that wait, so
that idle time cannot be saved up. Source: Sheng et al., "Fairness in Serving Large Language Models" (VTC), 2023.

While two tenants both always have requests waiting, their served tokens, divided by their weights, never differ by more
than a constant: what is committed to one tenant at a time (`tests/unit/scheduling/test_fair_shares.py`).
"""

from collections import Counter

__all__ = ["OUTPUT_COST", "FairShares"]

OUTPUT_COST = 2.0  # an output token takes a step of its own, prompt tokens share one; the paper's value
FORGET_ABOVE = 1024  # tenants


class FairShares:
    """Pure bookkeeping; the caller says what happens."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._waiting: Counter[str] = Counter()  # requests of each tenant that wait
        self._present: Counter[str] = Counter()  # requests of each tenant, running ones included
        self._last_left: str | None = None  # the tenant whose leaving emptied the queue

    def counter(self, tenant: str) -> float:
        """Tokens served, divided by the weight; 0 for one that was never seen."""
        return self._counters.get(tenant, 0.0)

    def arrive(self, tenant: str, weight: float) -> None:
        """A new request waits. `weight` is above 0; the latest one counts."""
        if not self._waiting[tenant]:
            self._lift(tenant)
        self._weights[tenant] = weight
        self._waiting[tenant] += 1
        self._present[tenant] += 1

    def start(self, tenant: str) -> None:
        """A waiting request begins to run."""
        self._waiting[tenant] -= 1
        self._last_left = tenant

    def put_back(self, tenant: str) -> None:
        """A running request waits again: what it was served stays counted, and nothing is lifted."""
        self._waiting[tenant] += 1

    def leave(self, tenant: str, *, waiting: bool) -> None:
        """A request has ended, while it waited or while it ran."""
        if waiting:
            self._waiting[tenant] -= 1
        self._present[tenant] -= 1
        if len(self._counters) > FORGET_ABOVE and self._last_left is not None:
            self._forget_idle()

    def charge(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Count what was served, or is about to be."""
        cost = prompt_tokens + OUTPUT_COST * output_tokens
        self._counters[tenant] = self.counter(tenant) + cost / self._weights.get(tenant, 1.0)

    def _lift(self, tenant: str) -> None:
        waiting = [self.counter(one) for one, count in self._waiting.items() if count > 0]
        last = 0.0 if self._last_left is None else self.counter(self._last_left)
        level = min(waiting, default=last)
        self._counters[tenant] = max(self.counter(tenant), level)

    def _forget_idle(self) -> None:
        """Tenants without requests that would be lifted anyway when they come back."""
        kept = {one for one, count in self._present.items() if count > 0} | {self._last_left}
        level = min(self.counter(one) for one in kept if one is not None)
        for tenant in [one for one, value in self._counters.items() if value <= level and one not in kept]:
            del self._counters[tenant]
            for counts in (self._waiting, self._present, self._weights):
                counts.pop(tenant, None)
