"""A steady load through the SDK, half of it synchronous, half asynchronous, with answers that are known."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from outrider import AsyncClient, Client, Generation, OutriderError, RetryPolicy, SamplingParams, Speculation

from benchmarks.faults.comparison import Difference, compare

__all__ = ["RETRY", "Load", "Question", "RequestRecord", "questions"]

# Generous: it outlasts the loss of both verifiers and of Serve's proxy at the same time.
RETRY = RetryPolicy(max_attempts=200, max_suspect_attempts=200, max_backoff_s=1.0, overloaded_backoff_s=0.2)
SILENCE_S = 10.0
PROMPTS = (
    "A storm came up",
    "The river rises",
    "Nobody at home said a word",
    "In the beginning there was",
)
MODES = (Speculation.on(), Speculation.auto())


@dataclass(frozen=True)
class Question:
    prompt: str
    temperature: float
    seed: int
    max_tokens: int

    def arguments(self) -> dict[str, Any]:
        sampling = SamplingParams(
            temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens, ignore_eos=True
        )
        return {"prompt": self.prompt, "sampling": sampling}


def questions(max_tokens: int) -> list[Question]:
    """Each prompt greedy and sampled."""
    return [
        Question(prompt, temperature, 11 + number, max_tokens)
        for number, prompt in enumerate(PROMPTS)
        for temperature in (0.0, 0.8)
    ]


@dataclass
class RequestRecord:
    """What became of one request; times are seconds since the start of the load."""

    started_s: float
    ended_s: float = 0.0
    deltas: list[tuple[float, int]] = field(default_factory=list)  # when, how many tokens
    attempts: int = 0
    error: str = ""
    difference: Difference = field(default_factory=Difference)
    text_differs: bool = False

    def longest_silence_s(self, since_s: float, until_s: float) -> float:
        """Longest time without a token of this request that overlaps the window."""
        times = [self.started_s, *(at for at, _ in self.deltas), self.ended_s]
        gaps = [b - max(a, since_s) for a, b in pairwise(times) if b > since_s and a < until_s]
        return max(gaps, default=0.0)


class Load:
    """`start`, then `stop`; `records` grows meanwhile."""

    def __init__(self, address: str, workers: int, asked: Sequence[Question], seed: int) -> None:
        self._address = address
        self._workers = workers
        self._questions = list(asked)
        self._seed = seed
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._began = time.monotonic()
        self.expected: dict[Question, Generation] = {}
        self.records: list[RequestRecord] = []

    def learn(self) -> None:
        """Ask every question once, undisturbed and without speculation: these answers are the right ones."""
        with Client(self._address, timeout=120.0) as client:
            for question in self._questions:
                self.expected[question] = client.generate(**question.arguments(), speculation=Speculation.off())

    def start(self) -> None:
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=lambda: asyncio.run(self._run_async()), name="load-async")]
        self._threads += [threading.Thread(target=self._run_sync, name="load-sync")]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let what runs end; returns when all is over."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def now(self) -> float:
        return time.monotonic() - self._began

    def _settings(self) -> dict[str, Any]:
        return {"retry": RETRY, "silence_timeout": SILENCE_S}

    def _run_sync(self) -> None:
        with Client(self._address, **self._settings()) as client:
            workers = [
                threading.Thread(target=self._ask_sync, args=(client, random.Random(f"{self._seed}-sync-{number}")))
                for number in range(self._workers // 2)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    def _ask_sync(self, client: Client, rng: random.Random) -> None:
        while not self._over.is_set():
            question, record = self._next(rng)
            try:
                with client.stream(**question.arguments(), speculation=rng.choice(MODES)) as stream:
                    for delta in stream:
                        record.deltas.append((self.now(), len(delta.token_ids)))
                    self._check(question, record, stream.result())
            except OutriderError as error:
                self._failed(question, record, error)

    async def _run_async(self) -> None:
        async with AsyncClient(self._address, **self._settings()) as client, asyncio.TaskGroup() as group:
            for number in range(self._workers - self._workers // 2):
                group.create_task(self._ask_async(client, random.Random(f"{self._seed}-async-{number}")))

    async def _ask_async(self, client: AsyncClient, rng: random.Random) -> None:
        while not self._over.is_set():
            question, record = self._next(rng)
            try:
                async with client.stream(**question.arguments(), speculation=rng.choice(MODES)) as stream:
                    async for delta in stream:
                        record.deltas.append((self.now(), len(delta.token_ids)))
                    self._check(question, record, await stream.result())
            except OutriderError as error:
                self._failed(question, record, error)

    def _next(self, rng: random.Random) -> tuple[Question, RequestRecord]:
        record = RequestRecord(self.now())
        self.records.append(record)
        return rng.choice(self._questions), record

    def _check(self, question: Question, record: RequestRecord, answer: Generation) -> None:
        known = self.expected[question]
        record.ended_s = self.now()
        record.attempts = answer.attempts
        record.difference = compare(known.token_ids, answer.token_ids)
        record.text_differs = (answer.text, answer.finish_reason) != (known.text, known.finish_reason)

    def _failed(self, question: Question, record: RequestRecord, error: OutriderError) -> None:
        """What arrived until then must be right as well."""
        record.ended_s = self.now()
        record.error = f"{type(error).__name__}: {error.message}"
        if error.partial is not None:
            got = error.partial.token_ids
            record.attempts = error.partial.attempts
            record.difference = compare(self.expected[question].token_ids[: len(got)], got)
