"""When to try again, and how long to wait before."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import grpc

from outrider.checks import shown
from outrider.errors import ConfigurationError, DeadlineExceededError, OutriderError
from outrider.failure import Failure, Verdict

__all__ = ["Attempts", "RetryPolicy"]

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of retrying. An attempt that brought new tokens starts the count anew.

    The wait before attempt k (2, 3, ...) is initial_backoff_s * multiplier**(k - 2), at most max_backoff_s, of which
    the share `jitter` is random. A hint of the server when to come back takes the place of initial_backoff_s and is
    never undercut: the share `jitter` is added to it, so that clients refused together do not come back together.
    """

    max_attempts: int = 6
    """Attempts in a row without a new token, the first included; 1 = never retry or resume."""
    max_suspect_attempts: int = 3
    """As max_attempts, counting only failures that may be a defect of the server (INTERNAL, UNKNOWN)."""
    initial_backoff_s: float = 0.1
    overloaded_backoff_s: float = 0.5
    """Takes the place of initial_backoff_s when the server is full and does not say when to come back."""
    max_backoff_s: float = 5.0
    multiplier: float = 2.0
    jitter: float = 0.5
    retry_overloaded: bool = True
    """Whether to wait and try again when the server is full."""
    max_hint_s: float = 60.0
    """Longest time that a hint of the server is waited for; beyond it its refusal is raised at once."""

    def __post_init__(self) -> None:
        for name, least in (("max_attempts", 1), ("max_suspect_attempts", 1), ("multiplier", 1.0)):
            if not getattr(self, name) >= least:
                raise ConfigurationError(f"retry.{name} must be at least {least}, got {shown(getattr(self, name))}")
        for name in ("initial_backoff_s", "overloaded_backoff_s", "max_backoff_s", "max_hint_s"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"retry.{name} must not be negative, got {shown(getattr(self, name))}")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"retry.jitter must be from 0 to 1, got {shown(self.jitter)}")

    @staticmethod
    def never() -> "RetryPolicy":
        """One attempt."""
        return RetryPolicy(max_attempts=1)

    def backoff_s(self, fruitless: int, verdict: Verdict, random: Random, hint_s: float | None = None) -> float:
        """Seconds to wait after `fruitless` attempts in a row without a new token; `hint_s` is the server's."""
        if hint_s is not None:
            wait = min(max(self.max_backoff_s, hint_s), hint_s * self.multiplier ** min(fruitless - 1, 64))
            return wait * (1.0 + self.jitter * random.random())
        first = self.overloaded_backoff_s if verdict is Verdict.OVERLOADED else self.initial_backoff_s
        # Beyond 64 doublings every sensible backoff is at its maximum; the bound keeps the power finite.
        wait = min(self.max_backoff_s, first * self.multiplier ** min(fruitless - 1, 64))
        return wait * (1.0 - self.jitter * random.random())


class Attempts:
    """The attempts of one call: counts them, keeps its time limit, decides about the next."""

    def __init__(
        self, policy: RetryPolicy, *, clock: Callable[[], float], random: Random, timeout_s: float | None
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._random = random
        self._timeout_s = timeout_s
        self._started: float | None = None
        self._fruitless = 0
        self._suspect = 0
        self.count = 0

    def begin(self) -> float | None:
        """Count one attempt; returns the seconds it may take (None = no limit)."""
        if self._started is None:
            self._started = self._clock()
        self.count += 1
        return self._remaining_s()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first attempt."""
        return 0.0 if self._started is None else self._clock() - self._started

    def delay_after(self, failure: Failure, *, progressed: bool) -> float:
        """Seconds to wait before the next attempt; raises the final error when there is none.

        Args:
            failure: How the last attempt ended.
            progressed: Whether it brought something new.
        """
        if progressed:
            self._fruitless = self._suspect = 0
        self._fruitless += 1
        self._suspect += failure.verdict is Verdict.SUSPECT
        remaining = self._remaining_s()
        if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED and remaining is not None and remaining <= 0:
            raise self._out_of_time(failure)
        if self._exhausted(failure):
            raise self._final(failure)
        delay = self._policy.backoff_s(self._fruitless, failure.verdict, self._random, failure.retry_after_s)
        if remaining is not None and delay >= remaining:
            raise self._out_of_time(failure) from failure.to_error()
        LOGGER.info("attempt %d in %.1f s, after: %s", self.count + 1, delay, failure.to_error().message)
        return delay

    def _exhausted(self, failure: Failure) -> bool:
        return (
            failure.verdict is Verdict.FINAL
            or (failure.verdict is Verdict.OVERLOADED and not self._policy.retry_overloaded)
            or (failure.retry_after_s or 0.0) > self._policy.max_hint_s
            or self._fruitless >= self._policy.max_attempts
            or self._suspect >= self._policy.max_suspect_attempts
        )

    def _final(self, failure: Failure) -> OutriderError:
        error = failure.to_error()
        if self.count > 1 and failure.verdict is not Verdict.FINAL:
            error.message += f" (gave up after {self.count} attempts)"
            error.args = (error.message,)
        return error

    def _out_of_time(self, failure: Failure) -> OutriderError:
        last = "" if failure.code is grpc.StatusCode.DEADLINE_EXCEEDED else f"; last: {failure.to_error().message}"
        message = f"no answer within {self._timeout_s:g} s ({self.count} attempts{last})"
        return DeadlineExceededError(message, status=failure.code.name)

    def _remaining_s(self) -> float | None:
        return None if self._timeout_s is None else max(0.0, self._timeout_s - self.elapsed_s)
