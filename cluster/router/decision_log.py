"""The latest choices of one gateway, so that it can say why a request went where it went."""

from collections import OrderedDict

from cluster.router.decision import Decision

__all__ = ["DecisionLog"]

MAX_PER_REQUEST = 64


class DecisionLog:
    """Choices by request id; the oldest requests are forgotten first."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._decisions: OrderedDict[str, list[Decision]] = OrderedDict()

    def record(self, request_id: str, decision: Decision) -> None:
        if not self._max_requests:
            return
        decisions = self._decisions.setdefault(request_id, [])
        if len(decisions) < MAX_PER_REQUEST:
            decisions.append(decision)
        if len(self._decisions) > self._max_requests:
            self._decisions.popitem(last=False)

    def of(self, request_id: str) -> list[Decision]:
        """In order of time; [] when it is not known (any more)."""
        return list(self._decisions.get(request_id, ()))
