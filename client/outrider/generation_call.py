"""One generation over all its attempts: builds requests, folds events, decides about resuming.

Pure bookkeeping without I/O; the sync and the async client drive it alike::

    while not call.complete:
        request, timeout_s = call.begin_attempt()
        for response in (send request): delta = call.receive(response)
        if not call.complete: wait call.delay_after(failure)
"""

from dataclasses import dataclass, field

from outrider import wire
from outrider.errors import DeadlineExceededError, OutriderError, ProtocolViolationError
from outrider.failure import Failure
from outrider.results import Delta, FinishReason, Generation, Output, TokenLogprob
from outrider.retry import Attempts
from outrider.statistics import GenerationStats
from outrider.v1 import generation_pb2

__all__ = ["GenerationCall"]

HEARTBEATS = 3  # so many in a row must be missing


@dataclass
class _Answer:
    """What has arrived of one answer."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text_length: int = 0
    """In code points, which is what Python counts."""
    finish_reason: FinishReason | None = None
    stop_string: str = ""
    stats: GenerationStats = field(default_factory=GenerationStats)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def resume_point(self) -> generation_pb2.ResumePoint:
        return generation_pb2.ResumePoint(
            index=self.index, token_ids=self.token_ids, text_length=self.text_length, finished=self.finished
        )

    def append(self, delta: Delta) -> None:
        self.token_ids.extend(delta.token_ids)
        self.texts.append(delta.text)
        self.text_length += len(delta.text)
        self.logprobs.extend(delta.logprobs)

    def output(self) -> Output:
        return Output(
            self.index,
            "".join(self.texts),
            tuple(self.token_ids),
            tuple(self.logprobs),
            self.finish_reason,
            self.stop_string,
            self.stats,
        )


class GenerationCall:
    """State of one generation; `receive` and `delay_after` raise only errors of `outrider.errors`."""

    def __init__(
        self, request: generation_pb2.GenerateRequest, attempts: Attempts, *, silence_timeout_s: float | None = None
    ) -> None:
        """`silence_timeout_s`: longest silence of an attempt; None = any."""
        self._request = request
        self._attempts = attempts
        self._silence_timeout_s = silence_timeout_s
        self._silence_limit_s = silence_timeout_s
        self._answers = [_Answer(index) for index in range(max(1, request.sampling.n))]
        self._started: generation_pb2.GenerationStarted | None = None
        self._started_in_attempt = False
        self._progressed = False

    @property
    def request_id(self) -> str:
        return self._request.request_id

    @property
    def seed(self) -> int:
        return self._request.sampling.seed

    @property
    def complete(self) -> bool:
        """Whether every answer has ended."""
        return all(answer.finished for answer in self._answers)

    def begin_attempt(self) -> tuple[generation_pb2.GenerateRequest, float | None]:
        """The message of the next attempt and the seconds that it may take (None = no limit)."""
        timeout_s = self._attempts.begin()
        self._started_in_attempt = self._progressed = False
        self._silence_limit_s = self._silence_timeout_s
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        request.resume.extend(a.resume_point for a in self._answers if a.token_ids or a.text_length or a.finished)
        if request.deadline_ms:
            remaining_ms = request.deadline_ms - round(self._attempts.elapsed_s * 1000)
            if remaining_ms <= 0:
                raise DeadlineExceededError(
                    f"the deadline of {self._request.deadline_ms / 1000:g} s passed while the connection was broken"
                )
            request.deadline_ms = remaining_ms
        return request, timeout_s

    @property
    def silence_limit_s(self) -> float | None:
        """How long the attempt may be silent from now on; None = for ever.

        The first message is due in any case; behind it only a server that sends signs of life can be held to it.
        """
        return self._silence_limit_s

    def receive(self, response: generation_pb2.GenerateResponse) -> Delta | None:
        """Fold one message in; returns what it adds for the reader, if anything."""
        match response.WhichOneof("event"):
            case "started":
                self._start(response.started)
            case "delta":
                self._check_offset(response.delta)
                return self._extend(wire.delta(response.delta))
            case "finished":
                self._finish(response.finished)
            case _:  # an event of a newer server: the contract lets it add kinds that do not change the text
                pass
        return None

    def delay_after(self, failure: Failure) -> float:
        """Seconds to wait before the next attempt; raises the final error when there is none."""
        return self._attempts.delay_after(failure, progressed=self._progressed)

    def describe(self, error: OutriderError) -> OutriderError:
        """Attach request id and partial result to an error."""
        error.request_id = self.request_id
        error.partial = self.snapshot()
        return error

    def snapshot(self) -> Generation:
        """What has arrived so far; the result once the call is complete."""
        model = self._started.model if self._started is not None else ""
        outputs = tuple(answer.output() for answer in self._answers)
        return Generation(self.request_id, model, self.seed, outputs, self._attempts.count)

    def _start(self, started: generation_pb2.GenerationStarted) -> None:
        first = self._started or started
        if (started.request_id, started.seed) != (self.request_id, self.seed) or started.model != first.model:
            raise ProtocolViolationError(
                f"asked for request {self.request_id!r}, seed {self.seed}, model {first.model!r}; "
                f"the server answered for request {started.request_id!r}, seed {started.seed}, model {started.model!r}"
            )
        self._started = first
        self._started_in_attempt = True
        if self._silence_timeout_s is not None:
            heartbeat_s = started.heartbeat_ms / 1000
            self._silence_limit_s = max(self._silence_timeout_s, HEARTBEATS * heartbeat_s) if heartbeat_s else None

    def _check_offset(self, delta: generation_pb2.GenerationDelta) -> None:
        """Whether it follows what has arrived, without a gap and without repetition."""
        have = len(self._answer(delta.index).token_ids)
        if delta.HasField("offset") and delta.offset != have:
            raise ProtocolViolationError(
                f"the server went on with answer {delta.index} at token {delta.offset}, but {have} have arrived"
            )

    def _extend(self, delta: Delta) -> Delta | None:
        answer = self._answer(delta.index)
        if answer.finished:
            raise ProtocolViolationError(f"the server went on with answer {delta.index} after it was finished")
        if not (delta.token_ids or delta.text):
            return None
        answer.append(delta)
        self._progressed = True
        return delta

    def _finish(self, finished: generation_pb2.GenerationFinished) -> None:
        answer = self._answer(finished.index)
        if answer.finished:
            return  # told again after a resumption; the first message counts
        answer.finish_reason = wire.finish_reason(finished.finish_reason)
        answer.stop_string = finished.stop_string
        answer.stats = wire.stats(finished.stats)
        self._progressed = True

    def _answer(self, index: int) -> _Answer:
        if not self._started_in_attempt:
            raise ProtocolViolationError("the server sent an answer before its first message, `started`")
        if index >= len(self._answers):
            raise ProtocolViolationError(f"the server sent answer {index}, asked for {len(self._answers)}")
        return self._answers[index]
