"""What came of it: counted as it happens, summed up at the end."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.simulator.costs import Step
from benchmarks.simulator.request import Running
from benchmarks.simulator.settings import SimulationSettings

__all__ = ["Metrics", "Totals", "percentiles"]

ITL_BIN_MS = 0.25
ITL_BINS = 8000  # the last one takes all that are longer


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99; empty for no values."""
    if not len(values):
        return {}
    return {f"p{p}": round(float(np.percentile(values, p)), 4) for p in (50, 95, 99)}


@dataclass
class Totals:
    """Of one verifier since its start."""

    arrived: int = 0
    finished: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    busy_s: float = 0.0
    seat_s: float = 0.0  # of decoding
    trees: float = 0.0
    nodes: float = 0.0
    accepted: float = 0.0
    tokens: float = 0.0
    ttft_ms: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=512))  # (time, value), latest

    def admit(self, tokens: int, hits: int) -> None:
        self.prompt_tokens += tokens
        self.hit_tokens += hits

    def steps(self, step: Step, count: int, decoding: int) -> None:
        self.busy_s += count * step.ms / 1e3
        self.seat_s += count * step.ms / 1e3 * decoding
        self.tokens += count * step.tokens * decoding
        if step.nodes:
            self.trees += count * decoding
            self.nodes += count * step.nodes
            self.accepted += count * (step.tokens - 1.0) * decoding


class Metrics:
    """Of the whole run. Requests count by the time of their arrival, tokens by the time of their step."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._settings = settings
        self.ttft_ms: list[float] = []
        self.finished = 0
        self.good = 0
        self.refused = 0
        self.stuck = 0
        self.offered = 0
        self.resumed = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.itl = np.zeros(ITL_BINS)  # tokens by the time since the one before
        self.seconds: dict[int, list[float]] = {}  # second of arrival -> TTFTs

    def counts(self, arrived_s: float) -> bool:
        return arrived_s >= self._settings.warmup_s

    def offer(self, now_s: float) -> None:
        self.offered += self.counts(now_s)

    def refuse(self, request: Running) -> None:
        self.refused += self.counts(request.arrived_s)

    def admitted(self, request: Running, tokens: int, hits: int) -> None:
        if self.counts(request.arrived_s) and not request.resumed:
            self.prompt_tokens += tokens
            self.hit_tokens += hits

    def decoded(self, step: Step, count: int, decoding: int, now_s: float) -> None:
        if decoding and self.counts(now_s):
            place = min(int(step.ms / step.tokens / ITL_BIN_MS), ITL_BINS - 1)
            self.itl[place] += count * decoding * step.tokens

    def finish(self, request: Running, now_s: float) -> None:
        """The answer is complete."""
        if not self.counts(request.arrived_s) or request.first_s is None:
            return
        ttft_ms = 1e3 * (request.first_s - request.arrived_s)
        self.finished += 1
        self.resumed += request.resumed > 0
        self.ttft_ms.append(ttft_ms)
        self.seconds.setdefault(int(request.arrived_s), []).append(ttft_ms)
        itl_ms = 1e3 * (now_s - request.first_s) / max(1, request.total_tokens - 1)
        self.good += ttft_ms <= self._settings.slo_ttft_ms and itl_ms <= self._settings.slo_itl_ms

    def left_over(self, requests: Iterable[Running]) -> None:
        """Those that wait at the end: whoever has no first token within the SLO by now has missed it."""
        latest_s = self._settings.duration_s - self._settings.slo_ttft_ms / 1e3
        self.stuck += sum(
            one.first_s is None and one.arrived_s < latest_s and self.counts(one.arrived_s) for one in requests
        )

    def summary(self) -> dict[str, Any]:
        """JSON."""
        counted_s = self._settings.duration_s - self._settings.warmup_s
        return {
            "offered": self.offered,
            "finished": self.finished,
            "refused": self.refused,
            "stuck": self.stuck,
            "resumed": self.resumed,
            "requests_per_s": round(self.finished / counted_s, 3),
            "goodput_per_s": round(self.good / counted_s, 3),
            "in_slo": round(self.good / max(1, self.finished + self.refused + self.stuck), 4),
            "hit_rate": round(self.hit_tokens / max(1, self.prompt_tokens), 4),
            "ttft_ms": percentiles(self.ttft_ms),
            "itl_ms": self._itl_percentiles(),
        }

    def _itl_percentiles(self) -> dict[str, float]:
        total = self.itl.cumsum()
        if total[-1] <= 0:
            return {}
        places = {f"p{p}": int(np.searchsorted(total, p / 100 * total[-1])) for p in (50, 95, 99)}
        return {name: round((place + 0.5) * ITL_BIN_MS, 4) for name, place in places.items()}
