"""The drafter's engine: one thread that takes frames in, grows all trees level by level, and hands proposals out.

inbox → sessions → plan (levels + prompt pieces) → one forward → children → proposals → outbox
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from workers.attention.forward_context import SequenceChunk
from workers.core.errors import UnavailableError
from workers.core.private_log import log_failure, summary
from workers.core.throughput import Throughput
from workers.core.tracing import NO_TRACER, Tracer
from workers.draft.chunks import Feed, Work
from workers.draft.messages import FrameIn, SessionErrorCode, Sink
from workers.draft.planner import plan_step
from workers.draft.session import SessionKey, SessionLimits
from workers.draft.sessions import DraftCounters, DraftModelInfo, SessionBook
from workers.kvcache.events import KvEventLog
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.runner.model_runner import ChunkOutput

__all__ = ["DraftEngine", "Runner"]

logger = logging.getLogger(__name__)

PREFILL_TOKENS = 64  # of a forward that shows how fast prompts are computed; with fewer it shows what a forward costs
SPARE_KEYS = 64


class Runner(Protocol):
    """What runs the draft model (`workers.runner.model_runner`, or a fake)."""

    def forward(self, chunks: Sequence[SequenceChunk]) -> Sequence[ChunkOutput]:
        """Store K/V of all new tokens; what the model says behind the tokens that each chunk asks for."""
        ...


class DraftEngine:
    """Grows the trees of all sessions. `submit` and the read-only members may be called from any thread.

    `start` runs it in a thread of its own; tests may call `handle` and `step` instead.
    """

    def __init__(
        self,
        runner: Runner,
        storage: KvStorage,
        manager: KvCacheManager,
        model: DraftModelInfo,
        *,
        max_sessions: int,
        max_tokens_per_step: int,
        grow_ahead: int,
        sink: Sink,
        events: KvEventLog | None = None,
        on_failure: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.counters = DraftCounters()
        self.manager = manager
        self._runner = runner
        self._limits = SessionLimits(model.context_length, grow_ahead)
        self._book = SessionBook(manager, storage, model, self._limits, max_sessions, self.counters, tracer)
        self._max_tokens = max_tokens_per_step
        self._sink = sink
        self._events = events
        self._on_failure = on_failure
        self._clock = clock
        self._inbox: queue.SimpleQueue[FrameIn | None] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._prefill = Throughput()
        self._responses = Throughput()
        self._asked_at: dict[SessionKey, float] = {}  # commits that are to be answered
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="draft-engine", daemon=True)

    # Any thread

    def submit(self, frame: FrameIn) -> None:
        self._inbox.put(frame)

    @property
    def backlog(self) -> int:
        """Frames that wait to be taken in."""
        return self._inbox.qsize()

    @property
    def num_sessions(self) -> int:
        return len(self._book.sessions)

    @property
    def num_waiting_tokens(self) -> int:
        """Committed tokens of all sessions that a prefill is still to compute."""
        missing = (one.base_len - one.table.num_computed for one in list(self._book.sessions.values()))
        return sum(tokens for tokens in missing if tokens > 1)

    @property
    def prefill_tokens_per_s(self) -> float:
        """Measured in forwards that are mostly prefill; 0 before the first."""
        return self._prefill.per_second

    @property
    def response_ms(self) -> float:
        """Mean time from a commit to its proposal, of those that needed a forward; 0 before the first."""
        rate = self._responses.per_second
        return 1e3 / rate if rate else 0.0

    @property
    def max_sessions(self) -> int:
        return self._book.max_sessions

    @property
    def num_pruned_trees(self) -> int:
        """Trees that gave way to others because the pool was full."""
        return self._book.memory.num_pruned

    def refuse_new_sessions(self) -> None:
        self._book.accepting = False

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the thread (after the forward that runs) and free all sessions."""
        self._stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            for stream in {key.stream for key in self._book.sessions}:
                self._book.apply(FrameIn(stream, 0, end=True))

    def check_health(self, stuck_after_s: float = 60.0) -> None:
        """Raise `UnavailableError` when the thread has died or one iteration takes longer than `stuck_after_s`."""
        if self._failure is not None:
            raise UnavailableError(f"the draft engine failed: {summary(self._failure)}")
        if not self._thread.is_alive():
            raise UnavailableError("the draft engine is not running")
        since = self._busy_since
        if since is not None and self._clock() - since > stuck_after_s:
            raise UnavailableError(f"the draft engine has been stuck for more than {stuck_after_s:g} s")

    # The engine's thread

    def handle(self, frame: FrameIn) -> None:
        """Take in one frame."""
        self._book.apply(frame)
        now = self._clock()
        self._asked_at.update((SessionKey(frame.stream, one.session_id), now) for one in frame.commits)

    def step(self) -> bool:
        """One iteration: at most one forward. False when there was nothing to do."""
        book = self._book
        self._emit_ready()
        self._flush()  # what is known already must not wait for the forward
        plan = plan_step(book.sessions.values(), self._limits, book.memory, self._max_tokens)
        for session in plan.over_capacity:
            message = f"no K/V memory for {session.base_len} tokens ({self.manager.num_blocks} blocks in all)"
            book.end(session, SessionErrorCode.OVER_CAPACITY, message)
        if plan.works:
            self._forward(plan.works)
        self._emit_ready()  # also of trees that found no memory to grow in
        self._flush()
        return bool(plan.works)

    def prepare(self) -> bool:
        """Do one small thing ahead of time; False when there is none."""
        return any(session.prepare(self._limits) for session in self._book.sessions.values())

    def check_invariants(self) -> None:
        """Raise `AssertionError` unless all books balance."""
        self.manager.check_invariants()
        for session in self._book.sessions.values():
            session.check_invariants()

    def _forward(self, works: Sequence[Work]) -> None:
        started = self._clock()
        outputs = self._runner.forward([work.chunk() for work in works])
        self.counters.forwards += 1
        fed = sum(work.count for work in works if isinstance(work, Feed) and work.count > 1)
        if fed >= PREFILL_TOKENS:
            self._prefill.record(fed, (self._clock() - started) * 1e3)
        for work, output in zip(works, outputs, strict=True):
            if isinstance(work, Feed):
                self.counters.fed_tokens += work.count
            else:
                self.counters.expanded_nodes += len(work.nodes)
            work.absorb(output.logits, self.manager)

    def _emit_ready(self) -> None:
        now = self._clock()
        for session in self._book.sessions.values():
            if session.ready(self._limits):
                self._book.emit(session)
                asked_at = self._asked_at.pop(session.key, None)
                if asked_at is not None:
                    self._responses.record(1, (now - asked_at) * 1e3)
        if len(self._asked_at) > 2 * len(self._book.sessions) + SPARE_KEYS:  # of sessions that have ended
            self._asked_at = {key: at for key, at in self._asked_at.items() if key in self._book.sessions}

    def _flush(self) -> None:
        for stream, frame in self._book.take_outbox().items():
            self._sink(stream, frame)
        if self._events is not None:
            self._events.publish(self.manager.take_events())

    def _run(self) -> None:
        try:
            idle = True
            while not self._stopping:
                self._drain(wait=idle)
                self._busy_since = self._clock()
                idle = not self.step() and not self.prepare()
                if not idle:
                    self.counters.busy_s += self._clock() - self._busy_since
                self._busy_since = None
        except Exception as error:  # noqa: BLE001  # the thread's last words; check_health tells the replica
            log_failure(logger, "the draft engine failed", error)
            self._failure = error
            self._on_failure()

    def _drain(self, *, wait: bool) -> None:
        """Take in all frames; with `wait`, sleep until there is one."""
        try:
            while not self._stopping:
                frame = self._inbox.get(block=wait)
                wait = False
                if frame is not None:
                    self.handle(frame)
        except queue.Empty:
            return
