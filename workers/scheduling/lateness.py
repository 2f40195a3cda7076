"""How long a drafter takes to answer: running mean and mean deviation (as TCP estimates its round trip)."""

from dataclasses import dataclass

__all__ = ["Lateness"]

MEAN_WEIGHT = 0.125
DEVIATION_WEIGHT = 0.25


@dataclass
class Lateness:
    """Milliseconds from a commit to the proposal for it."""

    mean_ms: float | None = None
    deviation_ms: float = 0.0

    def record(self, took_ms: float) -> None:
        if self.mean_ms is None:
            self.mean_ms, self.deviation_ms = took_ms, took_ms / 2
            return
        error = took_ms - self.mean_ms
        self.mean_ms += MEAN_WEIGHT * error
        self.deviation_ms += DEVIATION_WEIGHT * (abs(error) - self.deviation_ms)

    def due_ms(self, waited_ms: float) -> float | None:
        """Expected from now, when it has been waited for that long already; None = never measured."""
        return None if self.mean_ms is None else max(0.0, self.mean_ms - waited_ms)
