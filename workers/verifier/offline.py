"""Runs many requests through an engine without a server: data generation, probes, benchmarks."""

import queue
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workers.core.errors import OutriderError
from workers.core.request import GenerationRequest, StepOutput
from workers.core.statistics import GenerationStats
from workers.verifier.engine import VerifierEngine

__all__ = ["Answered", "run_requests", "run_together"]


@dataclass
class Answered:
    """A finished request: its place among the requests, and the engine's key for it."""

    index: int
    request: GenerationRequest
    key: int = -1
    token_ids: list[int] = field(default_factory=list)
    stats: GenerationStats = field(default_factory=GenerationStats)


@dataclass
class _Sink:
    answered: Answered
    finished: "queue.SimpleQueue[_Sink]"
    error: OutriderError | None = None

    def push(self, output: StepOutput) -> None:
        self.answered.token_ids.extend(output.token_ids)
        if output.finish_reason is not None:
            self.answered.stats = output.stats or self.answered.stats
            self.finished.put(self)

    def fail(self, error: OutriderError) -> None:
        self.error = error
        self.finished.put(self)


def run_requests(engine: VerifierEngine, requests: Iterable[GenerationRequest], concurrency: int) -> Iterator[Answered]:
    """Yield answers as they end, with at most `concurrency` in the engine at a time. Raises the first failure."""
    finished: queue.SimpleQueue[_Sink] = queue.SimpleQueue()
    waiting = iter(enumerate(requests))
    running = 0
    while True:
        while running < concurrency and (entry := next(waiting, None)) is not None:
            sink = _Sink(Answered(*entry), finished)
            sink.answered.key = engine.submit(entry[1], sink)
            running += 1
        if not running:
            return
        sink = finished.get()
        running -= 1
        if sink.error is not None:
            raise sink.error
        yield sink.answered


def run_together(engine: VerifierEngine, requests: Sequence[GenerationRequest]) -> list[Answered]:
    """All of them at once; the answers in the order of the requests."""
    return sorted(run_requests(engine, requests, len(requests)), key=lambda answered: answered.index)
