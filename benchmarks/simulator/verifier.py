"""A verifier: seats, a queue, chunked prefill, decoding. Steps in which nothing comes, goes or is read are one jump."""

import math
from collections import deque
from collections.abc import Callable
from functools import partial

from benchmarks.simulator.blocks import BlockCache
from benchmarks.simulator.costs import Step, StepPlanner
from benchmarks.simulator.events import Timeline
from benchmarks.simulator.metrics import Metrics, Totals
from benchmarks.simulator.request import Running
from benchmarks.simulator.settings import VerifierModel
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord

__all__ = ["SimulatedVerifier"]


class SimulatedVerifier:
    """`enqueue` requests; everything else happens on the timeline."""

    def __init__(
        self, record: ReplicaRecord, model: VerifierModel, planner: StepPlanner, timeline: Timeline, metrics: Metrics
    ) -> None:
        self.record = record
        self.alive = True
        self.dirty = False  # something is to be told
        self.on_change: Callable[[], None] = lambda: None
        self.draining = False
        self.cache = BlockCache(model.num_blocks)
        self.totals = Totals()
        self.waiting: deque[Running] = deque()
        self.reading: deque[Running] = deque()  # prompts that are being computed, in order of arrival
        self.decoding: list[Running] = []
        self._model = model
        self._planner = planner
        self._timeline = timeline
        self._metrics = metrics
        self._context = 0  # tokens of all that run
        self._step: Step | None = None  # that runs now, `_count` times from `_began_s` on
        self._count = 0
        self._began_s = 0.0
        self._rows: list[tuple[Running, int]] = []  # prompt tokens of that step
        self._version = 0

    @property
    def running(self) -> int:
        return len(self.reading) + len(self.decoding)

    def changed(self) -> None:
        """Gateways are to hear of it."""
        if not self.dirty:
            self.dirty = True
            self.on_change()

    def enqueue(self, request: Running) -> bool:
        """False: the queue is full."""
        if not self.alive or len(self.waiting) >= self._model.max_waiting + max(0, self._model.seats - self.running):
            return False
        self.waiting.append(request)
        self.totals.arrived += 1
        self.changed()
        if self._step is None:
            self._begin()
        elif self._count > 1 and self.running < self._model.seats:
            self._cut()
        return True

    def lose(self) -> list[Running]:
        """The process dies; what it had."""
        lost = [*self.reading, *self.decoding, *self.waiting]
        self.alive = False
        self._version += 1
        for request in lost:
            self._release(request)
        self.waiting.clear()
        self.reading.clear()
        self.decoding.clear()
        return lost

    def load(self) -> ReplicaLoad:
        bs = self.record.kv_block_size
        waiting = sum(len(one.prompt.chain) * bs for one in self.waiting) + sum(r.prefill_tokens for r in self.reading)
        return ReplicaLoad(
            running_requests=self.running,
            waiting_requests=len(self.waiting),
            total_kv_blocks=self.cache.capacity,
            free_kv_blocks=self.cache.free,
            waiting_tokens=waiting,
            prefill_tokens_per_s=self._planner.prefill_tokens_per_s(self._model.max_tokens_per_step),
            max_running_requests=self._model.seats,
        )

    def _cut(self) -> None:
        """End the jump with the step that runs now, so that the new request joins the next one."""
        assert self._step is not None  # noqa: S101
        done = math.ceil((self._timeline.now - self._began_s) * 1e3 / self._step.ms - 1e-9)
        if max(1, done) < self._count:
            self._count = max(1, done)
            self._plan_end()

    def _plan_end(self) -> None:
        assert self._step is not None  # noqa: S101
        self._version += 1
        self._timeline.at(self._began_s + self._count * self._step.ms / 1e3, partial(self._end, self._version))

    def _begin(self) -> None:
        self._admit()
        if not self.reading and not self.decoding:
            self._step = None
            return
        self._began_s = self._timeline.now
        room = self._model.max_tokens_per_step - len(self.decoding)
        self._rows = []
        for request in self.reading:
            if room <= 0:
                break
            tokens = min(room, request.prefill_tokens)
            self._rows.append((request, tokens))
            room -= tokens
        self._step = self._planned(sum(tokens for _, tokens in self._rows))
        self._count = 1
        if not self._rows:
            least = min(request.remaining for request in self.decoding)
            self._count = max(1, math.ceil(least / self._step.tokens - 1e-9))
            ready_s = self._next_ready()
            if ready_s is not None:  # a drafter will have read its prompt: the yield changes
                self._count = min(self._count, math.ceil((ready_s - self._began_s) * 1e3 / self._step.ms))
        self._plan_end()

    def _planned(self, prompt_rows: int) -> Step:
        now_s, drafted, response_ms = self._timeline.now, 0, 0.0
        for request in self.decoding:
            drafter = request.drafter
            if drafter is not None and drafter.alive and request.ready_s <= now_s:
                drafted += 1
                response_ms += drafter.response_ms
        return self._planner.plan(
            len(self.decoding), drafted, prompt_rows, self._context, response_ms / drafted if drafted else 0.0
        )

    def _next_ready(self) -> float | None:
        now_s = self._timeline.now
        due = [r.ready_s for r in self.decoding if r.drafter is not None and r.drafter.alive and r.ready_s > now_s]
        return min(due, default=None)

    def _admit(self) -> None:
        while self.waiting and self.running < self._model.seats:
            if not self._model.admit_early and (
                sum(one.prefill_tokens for one in self.reading) >= self._model.max_tokens_per_step
            ):
                return
            request = self.waiting[0]
            prompt = request.prompt
            # Room for the whole answer at once: reality reserves as it grows, and preempts.
            more = math.ceil(prompt.output_tokens / self.record.kv_block_size)
            lease = self.cache.open(prompt.chain, more)
            if lease is None:
                if not self.running:
                    raise ValueError(f"a prompt of {len(prompt.chain)} blocks does not fit into {self.cache.capacity}")
                return
            self.waiting.popleft()
            request.lease, request.hits = lease, len(lease.shared)
            tokens = len(prompt.chain) * self.record.kv_block_size
            request.prefill_tokens = max(1, tokens - request.hits * self.record.kv_block_size)
            self._context += tokens + prompt.output_tokens // 2
            self._open_session(request)
            self.reading.append(request)
            self.totals.admit(tokens, request.hits * self.record.kv_block_size)
            self._metrics.admitted(request, tokens, request.hits * self.record.kv_block_size)

    def _open_session(self, request: Running) -> None:
        for drafter in request.drafters:
            ready_s = drafter.open(request.prompt.chain, self._timeline.now)
            if ready_s is not None:
                request.drafter, request.ready_s = drafter, ready_s
                return

    def _end(self, version: int) -> None:
        if version != self._version or self._step is None:
            return
        step, count, now_s = self._step, self._count, self._timeline.now
        self.totals.steps(step, count, len(self.decoding))
        self._metrics.decoded(step, count, len(self.decoding), now_s)
        self.changed()
        gained, finished = step.tokens * count, []
        for request in self.decoding:
            request.remaining -= gained
            if request.remaining <= 1e-6:
                finished.append(request)
        for request, tokens in self._rows:
            request.prefill_tokens -= tokens
            if not request.prefill_tokens:
                self._read(request, finished)
        for request in finished:
            self.decoding.remove(request)
            self._finish(request)
        self._begin()
        for request in finished:
            request.ended(request, True)

    def _read(self, request: Running, finished: list[Running]) -> None:
        """Its prompt is computed: this step gave its first token."""
        assert request.lease is not None  # noqa: S101
        self.reading.remove(request)
        self.decoding.append(request)
        self.cache.name(request.lease, request.prompt.chain[request.hits :])
        request.remaining -= 1.0
        if request.first_s is None:
            request.first_s = self._timeline.now
            self.totals.ttft_ms.append((self._timeline.now, 1e3 * (self._timeline.now - request.arrived_s)))
        if request.remaining <= 1e-6:
            finished.append(request)

    def _finish(self, request: Running) -> None:
        assert request.lease is not None  # noqa: S101
        if self._model.cache_outputs:
            self.cache.name(request.lease, request.prompt.output)
        self._release(request)
        self.totals.finished += 1

    def _release(self, request: Running) -> None:
        if request.lease is not None:
            self.cache.close(request.lease)
            request.lease = None
            self._context -= len(request.prompt.chain) * self.record.kv_block_size + request.prompt.output_tokens // 2
        if request.drafter is not None:
            request.drafter.close(self._timeline.now)
            request.drafter = None
