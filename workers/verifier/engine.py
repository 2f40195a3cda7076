"""The verifier's engine: one thread that runs steps while there is work.

Other threads talk to it through `submit` and `cancel` only; results go to each request's `OutputSink`.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from itertools import count

from workers.core.errors import OutriderError, OverloadedError, UnavailableError
from workers.core.private_log import log_failure, summary
from workers.core.request import FinishReason, GenerationRequest, StepOutput, TokenLogprob
from workers.core.retry_hint import RetryHints
from workers.core.throughput import Throughput
from workers.kvcache.events import KvEventLog
from workers.kvcache.manager import KvCacheManager
from workers.sampling.request_sampler import RequestSampler
from workers.scheduling.pace import PaceMeter
from workers.text.output_text import OutputText
from workers.text.tokenizer import Tokenizer
from workers.verifier.finish import finish_of
from workers.verifier.limits import EngineLimits
from workers.verifier.load_meter import FAILED, LoadMeter
from workers.verifier.request_state import OutputSink, RequestState
from workers.verifier.scheduler import Scheduler
from workers.verifier.speculation import Committed, Speculation
from workers.verifier.step import StepResult, VerifyStep

__all__ = ["VerifierEngine"]

logger = logging.getLogger(__name__)

PREFILL_TOKENS = 64  # of a step that shows how fast prompts are computed; with fewer it shows what a step costs
LOST_SHARE = 0.5  # a running request is given up when it has less than this share of the time that it still needs

Clock = Callable[[], float]
"""Monotonic seconds."""


class VerifierEngine:
    """Continuous batching of requests over one target model. `start` it, `stop` it once."""

    def __init__(
        self,
        *,
        step: VerifyStep,
        kv_cache: KvCacheManager,
        scheduler: Scheduler,
        speculation: Speculation,
        limits: EngineLimits,
        tokenizer: Tokenizer,
        events: KvEventLog,
        max_waiting: int,
        give_up_hopeless: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._step = step
        self._kv_cache = kv_cache
        self._scheduler = scheduler
        self._speculation = speculation
        self._limits = limits
        self.load = LoadMeter(clock)
        speculation.load = self.load.counters
        self._tokenizer = tokenizer
        self.events = events
        self._max_waiting = max_waiting
        self._give_up = give_up_hopeless
        self._clock = clock
        self._cycle_started: float | None = None  # end of the step before, unless there was a break
        self._prefill = Throughput()
        self._keys = count(1)
        self._pace = PaceMeter()
        self._hints = RetryHints()  # guarded by `_wake`
        self._states: dict[int, RequestState] = {}
        self._wake = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None
        self._busy_since: float | None = None  # start of the step that runs now
        self._thread = threading.Thread(target=self._run, name="verifier-engine", daemon=True)

    # Called from other threads

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: GenerationRequest, sink: OutputSink) -> int:
        """Queue a request and return its key; raises what is wrong with it, or `OverloadedError`.

        One that waits already, and ranks behind it, may have to go: its sink fails with `OverloadedError`.
        """
        max_output = self._limits.max_output_tokens(request)
        state = RequestState(
            key=next(self._keys),
            request=request,
            sink=sink,
            sampler=RequestSampler(request, self._limits.vocab_size, self._limits.eos_token_ids),
            max_output_tokens=max_output,
            arrived_at=self._clock(),
            stop_text=self._stop_text(request),
            tokens=[*request.prompt_token_ids, *request.output_token_ids],
        )
        state.stats.prompt_tokens = len(request.prompt_token_ids)
        state.stats.seed = request.seed
        state.stats.exact = request.rule.exact
        deadline_ms = request.deadline_ms
        state.can_finish = deadline_ms is not None and 0 < self._pace.best_s(state.work) <= deadline_ms / 1e3
        with self._wake:
            if self._stopping or self._failure is not None:
                raise self._unavailable()
            taken, displaced = self._scheduler.waiting.offer(state, self._max_waiting + self._free_seats())
            if not taken:
                self.load.counters.refused += 1
                raise self._full()
            self._states[state.key] = state
            self.load.counters.arrived += 1
            refusal = None if displaced is None else self._full()
            if displaced is not None:
                del self._states[displaced.key]
                self.load.counters.refused += 1
            self._wake.notify()
        if displaced is not None and refusal is not None:
            displaced.sink.fail(refusal)
        return state.key

    def cancel(self, key: int) -> None:
        """End a request; its blocks are free after the step that runs now. Unknown keys are ignored."""
        with self._wake:
            state = self._states.get(key)
            if state is not None:
                state.cancelled = True
                self._wake.notify()

    def stop(self) -> None:
        """End all requests as unavailable and join the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def check_health(self, stuck_after_s: float = math.inf) -> None:
        """Raise `UnavailableError` when the engine's thread has failed, or one step takes longer than this."""
        if self._failure is not None or not (self._thread.is_alive() or self._stopping):
            why = "its thread has ended" if self._failure is None else summary(self._failure)
            raise UnavailableError(f"the verifier's engine has failed: {why}")
        since = self._busy_since
        if since is not None and self._clock() - since > stuck_after_s:
            raise UnavailableError(f"the verifier's engine has been stuck in a step for more than {stuck_after_s:g} s")

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def num_waiting_tokens(self) -> int:
        """Committed tokens of all requests that a prefill is still to compute."""
        states = [*list(self._scheduler.running), *self._scheduler.waiting]
        return sum(state.num_uncomputed for state in states if state.num_uncomputed > 1)

    @property
    def prefill_tokens_per_s(self) -> float:
        """Measured in steps that are mostly prefill; 0 before the first."""
        return self._prefill.per_second

    @property
    def kv_usage(self) -> float:
        """Share of the K/V blocks that running requests hold."""
        return 1.0 - self._kv_cache.num_free_blocks / self._kv_cache.num_blocks

    @property
    def max_running(self) -> int:
        return self._scheduler.max_running

    @property
    def num_preemptions(self) -> int:
        """Since the start."""
        return self._scheduler.num_preemptions

    @property
    def num_speculating(self) -> int:
        """Requests that drafts are wanted for now."""
        return self._speculation.num_active

    @property
    def num_free_blocks(self) -> int:
        return self._kv_cache.num_free_blocks

    @property
    def kv_memory_bytes(self) -> int:
        """Size of the K/V pool; it never changes."""
        return self._step.kv_memory_bytes

    @property
    def is_idle(self) -> bool:
        return not self._states

    # The engine's thread

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._busy_since = self._clock()
                self.run_step()
                self._busy_since = None
        except BaseException as error:  # noqa: BLE001  # the thread's last words
            log_failure(logger, "the verifier's engine failed", error)
            self._failure = error
        with self._wake:
            self._stopping = True
            states = list(self._states.values())
        for state in states:
            self._fail(state, self._unavailable())
        self._speculation.close()

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not self._states and not self._stopping:
                self._cycle_started = None
                self._hints.idle()
                self._wake.wait()
            return not self._stopping

    def run_step(self) -> None:
        """One step: admit, gather proposals, compute, commit, tell everyone."""
        started = self._cycle_started or self._clock()
        self._end_early()
        for state in self._scheduler.admit():
            self._on_admitted(state)
        self._give_up_hopeless()
        proposals = self._speculation.gather(self._scheduler.running)
        scheduled = self._scheduler.schedule(proposals)
        if scheduled:
            prompt_tokens = sum(item.num_tokens for item in scheduled if item.num_tokens > 1)
            results = self._step.run(scheduled)
            self.load.counters.steps += 1
            self._cycle_started = self._clock()
            seconds = self._cycle_started - started
            if prompt_tokens >= PREFILL_TOKENS:
                self._prefill.record(prompt_tokens, seconds * 1e3)
            self._speculation.record(scheduled, results, seconds * 1e3)
            if results:
                self._pace.step(seconds, sum(len(one.token_ids) for one in results) / len(results))
            self._publish(results)
        self._speculation.flush()
        self.events.publish(self._kv_cache.take_events())

    def _end_early(self) -> None:
        now = self._clock()
        for state in (*self._scheduler.running, *self._scheduler.waiting):
            if state.cancelled:
                self._finish(state, FinishReason.CANCELLED)
            elif state.deadline_at is not None and now >= state.deadline_at:
                self._finish(state, FinishReason.DEADLINE)
            elif state.remaining_tokens <= 0:  # a resumed request that had ended already
                self._finish(state, FinishReason.LENGTH)

    def _give_up_hopeless(self) -> None:
        """While some wait: who could have ended in time when it came, and no longer can, takes no step more."""
        if not self._give_up or not len(self._scheduler.waiting):
            return
        now = self._clock()
        for state in (*self._scheduler.waiting, *self._scheduler.running):
            if state.deadline_at is None or not state.can_finish:
                continue
            left_s = state.deadline_at - now
            if state.fresh and left_s < (needed_s := self._pace.expected_s(state.work)):
                text = f"it waited too long to end within its deadline (it needs about {needed_s:.1f} s)"
                with self._wake:
                    self.load.counters.refused += 1
                    error = OverloadedError(text, self._hints.refuse(now))
                self._fail(state, error)
            elif not state.fresh and left_s < LOST_SHARE * self._pace.rest_s(state.work, state.num_output):
                self._finish(state, FinishReason.DEADLINE)

    def _on_admitted(self, state: RequestState) -> None:
        if state.stats.preemptions == 0:
            state.admitted_at = self._clock()
            state.stats.queue_ms = (self._clock() - state.arrived_at) * 1e3
            state.stats.cached_prompt_tokens = state.num_computed
            self.load.admitted(state.admitted_at - state.arrived_at, len(state.tokens), state.num_computed)
        self._speculation.admit(state)

    def _publish(self, results: list[StepResult]) -> None:
        committed: list[Committed] = []
        for result in results:
            state = result.state
            if result.error is not None:
                self._fail(state, result.error)
                continue
            finish, kept = finish_of(state, result.token_ids, self._limits.eos_token_ids)
            base_len = len(state.tokens) - len(result.token_ids)
            del state.tokens[base_len + kept :]
            if state.stats.verify_steps == 0:
                state.stats.time_to_first_token_ms = (self._clock() - state.arrived_at) * 1e3
                if state.admitted_at is not None:
                    self._pace.first_token(len(state.request.prompt_token_ids), self._clock() - state.admitted_at)
            tree, accepted = result.proposal.tree, min(len(result.accepted_nodes), kept)
            state.stats.record_step(tree.max_depth, len(tree), accepted, kept)
            self.load.committed(state.key, state.arrived_at, kept, len(tree), accepted, tree.max_depth)
            tokens, logprobs = result.token_ids[:kept], result.logprobs[:kept]
            self._scheduler.waiting.served(state, kept)
            if finish is None:
                state.sink.push(StepOutput(state.request.request_id, tokens, logprobs))
                hidden = None if result.hidden is None else result.hidden[:kept]
                committed.append(Committed(state, base_len, tokens, hidden))
            else:
                self._finish(state, finish.reason, finish.stop_string, tokens, logprobs)
        self._speculation.tell(committed, self._scheduler.running)

    def _finish(
        self,
        state: RequestState,
        reason: FinishReason,
        stop_string: str = "",
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> None:
        if not self._forget(state, reason):
            return
        state.stats.total_ms = (self._clock() - state.arrived_at) * 1e3
        if reason in (FinishReason.STOP, FinishReason.LENGTH) and not state.request.output_token_ids:
            self._pace.ended(state.work, state.num_output)
        state.sink.push(StepOutput(state.request.request_id, tokens, logprobs, reason, stop_string, state.stats))

    def _fail(self, state: RequestState, error: OutriderError) -> None:
        if self._forget(state):
            state.sink.fail(error)

    def _full(self) -> OverloadedError:
        """Call it with `_wake` held."""
        text = f"the queue of this verifier is full ({self._max_waiting} requests); try again"
        return OverloadedError(text, self._hints.refuse(self._clock()))

    def _unavailable(self) -> UnavailableError:
        why = "is shutting down" if self._failure is None else "has failed"
        return UnavailableError(f"this verifier {why}; try another")

    def _forget(self, state: RequestState, how: str = FAILED) -> bool:
        """Take it out of all books; False when it has been displaced meanwhile."""
        with self._wake:
            if self._states.pop(state.key, None) is None:
                return False
            self.load.ended(state.key, how)
            if state.admitted_at is not None:
                self._hints.left(self._clock())
        self._scheduler.remove(state)
        self._speculation.forget(state)
        return True

    def _free_seats(self) -> int:
        return max(0, self._scheduler.max_running - self.num_running)

    def _stop_text(self, request: GenerationRequest) -> OutputText | None:
        if not request.sampling.stop:
            return None
        text = OutputText(self._tokenizer, request.sampling.stop)
        text.push(request.output_token_ids)
        return text
