"""Running averages of step times and acceptance: the inputs of the grace policy."""

from workers.scheduling.grace import StepEstimates

__all__ = ["StepClock"]

WEIGHT = 0.1  # of a new measurement
OPTIMISTIC_ACCEPTANCE_LENGTH = 2.0  # until something was measured


class StepClock:
    """Exponential moving averages; milliseconds."""

    def __init__(self) -> None:
        self._plain_ms: float | None = None
        self._tree_ms: float | None = None
        self._acceptance_length = OPTIMISTIC_ACCEPTANCE_LENGTH

    def record(self, step_ms: float, num_requests: int, num_nodes: int, num_tokens: int) -> None:
        """Count a step without prefill: `num_nodes` draft tokens verified, `num_tokens` emitted."""
        if num_nodes:
            self._tree_ms = _blend(self._tree_ms, step_ms)
            self._acceptance_length = _blend(self._acceptance_length, num_tokens / num_requests)
        else:
            self._plain_ms = _blend(self._plain_ms, step_ms)

    @property
    def estimates(self) -> StepEstimates:
        known = self._plain_ms or self._tree_ms or 0.0
        return StepEstimates(self._plain_ms or known, self._tree_ms or known, self._acceptance_length)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
