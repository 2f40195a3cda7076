"""The classifier and the decisions about another attempt; no server, no real time."""

import logging
from random import Random
from typing import Any

import grpc
import outrider
import pytest
from outrider import ConfigurationError, RetryPolicy
from outrider.failure import ENDED_EARLY, Failure, Verdict
from outrider.retry import Attempts
from outrider.testing import FakeClock

from workers.core import errors as server_errors
from workers.rpc.errors import to_status

CODE = grpc.StatusCode
DEAD = Failure(CODE.UNAVAILABLE, "connection refused")
BROKEN = Failure(CODE.INTERNAL, "The actor died unexpectedly")
FULL = Failure(CODE.RESOURCE_EXHAUSTED, "OverloadedError: 256 requests wait already")
WRONG = Failure(CODE.INVALID_ARGUMENT, "InvalidRequestError: top_p: must be above 0")


def attempts(policy: RetryPolicy, clock: FakeClock, timeout_s: float | None = None) -> Attempts:
    return Attempts(policy, clock=clock, random=Random(0), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("code", "details", "verdict", "kind"),
    [
        (CODE.UNAVAILABLE, "", Verdict.TRANSIENT, outrider.ConnectionLostError),
        (CODE.CANCELLED, "RST_STREAM 8", Verdict.TRANSIENT, outrider.ConnectionLostError),
        (CODE.ABORTED, "", Verdict.TRANSIENT, outrider.UnavailableError),
        (CODE.UNKNOWN, "Received http2 header with status: 500", Verdict.SUSPECT, outrider.ConnectionLostError),
        (CODE.INTERNAL, "The actor died unexpectedly", Verdict.SUSPECT, outrider.InternalError),
        (CODE.RESOURCE_EXHAUSTED, "", Verdict.OVERLOADED, outrider.OverloadedError),
        (CODE.RESOURCE_EXHAUSTED, "Received message larger than max", Verdict.FINAL, outrider.InvalidRequestError),
        (CODE.INVALID_ARGUMENT, "no", Verdict.FINAL, outrider.InvalidRequestError),
        (CODE.NOT_FOUND, "no", Verdict.FINAL, outrider.NotFoundError),
        (CODE.FAILED_PRECONDITION, "no", Verdict.FINAL, outrider.IncompatibleError),
        (CODE.UNIMPLEMENTED, "no", Verdict.FINAL, outrider.IncompatibleError),
        (CODE.PERMISSION_DENIED, "no", Verdict.FINAL, outrider.AuthenticationError),
        (CODE.UNAUTHENTICATED, "no", Verdict.FINAL, outrider.AuthenticationError),
        (CODE.DEADLINE_EXCEEDED, "no", Verdict.FINAL, outrider.DeadlineError),
        # A proxy may lose the code, never the name.
        (CODE.INTERNAL, "ContextLengthError: 5000 tokens, 4096 fit", Verdict.FINAL, outrider.ContextLengthError),
        (CODE.UNKNOWN, "OverloadedError: full", Verdict.OVERLOADED, outrider.OverloadedError),
    ],
)  # fmt: skip
def test_classifier(code: grpc.StatusCode, details: str, verdict: Verdict, kind: type[outrider.OutriderError]) -> None:
    failure = Failure(code, details)
    assert failure.verdict is verdict
    error = failure.to_error()
    assert type(error) is kind
    assert error.status == code.name


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_code_is_classified(code: grpc.StatusCode) -> None:
    assert isinstance(Failure(code, "").to_error(), outrider.OutriderError)


@pytest.mark.parametrize("name", [name for name in server_errors.__all__ if name != "OutriderError"])
def test_every_error_of_the_server_arrives_as_the_class_of_the_same_name(name: str) -> None:
    code, details = to_status(getattr(server_errors, name)("what: was wrong"))
    error = Failure(code, details).to_error()
    assert type(error) is getattr(outrider, name)
    assert error.message == str(error) == "what: was wrong"


def test_transient_failures_end_after_max_attempts() -> None:
    clock = FakeClock()
    calls = attempts(RetryPolicy(max_attempts=3), clock)
    for _ in range(2):
        calls.begin()
        assert calls.delay_after(DEAD, progressed=False) > 0
    calls.begin()
    with pytest.raises(outrider.ConnectionLostError, match=r"connection refused \(gave up after 3 attempts\)"):
        calls.delay_after(DEAD, progressed=False)


def test_suspect_failures_end_sooner_also_when_mixed_with_others() -> None:
    calls = attempts(RetryPolicy(max_attempts=9, max_suspect_attempts=2), FakeClock())
    calls.delay_after(DEAD, progressed=False)
    calls.delay_after(BROKEN, progressed=False)
    calls.delay_after(DEAD, progressed=False)
    with pytest.raises(outrider.InternalError):
        calls.delay_after(BROKEN, progressed=False)


def test_progress_starts_the_count_anew() -> None:
    calls = attempts(RetryPolicy(max_attempts=2, max_suspect_attempts=2), FakeClock())
    for _ in range(10):
        calls.delay_after(BROKEN, progressed=True)
    with pytest.raises(outrider.InternalError):
        calls.delay_after(BROKEN, progressed=False)


def test_a_stream_that_ends_early_is_a_suspect_failure() -> None:
    assert ENDED_EARLY.verdict is Verdict.SUSPECT
    assert isinstance(ENDED_EARLY.to_error(), outrider.ConnectionLostError)


def test_final_failures_are_raised_at_once_and_as_they_are() -> None:
    with pytest.raises(outrider.InvalidRequestError) as caught:
        attempts(RetryPolicy(), FakeClock()).delay_after(WRONG, progressed=True)
    assert caught.value.message == "top_p: must be above 0"


def test_waiting_is_logged_and_giving_up_is_not(caplog: pytest.LogCaptureFixture) -> None:
    policy = RetryPolicy(max_attempts=2, initial_backoff_s=1.5, jitter=0.0)
    calls = attempts(policy, FakeClock())
    with caplog.at_level(logging.INFO, logger="outrider"):
        calls.begin()
        calls.delay_after(DEAD, progressed=False)
        with pytest.raises(outrider.ConnectionLostError):
            calls.delay_after(DEAD, progressed=False)
    assert caplog.messages == ["attempt 2 in 1.5 s, after: connection refused"]


def test_never_means_one_attempt() -> None:
    with pytest.raises(outrider.ConnectionLostError):
        attempts(RetryPolicy.never(), FakeClock()).delay_after(DEAD, progressed=True)


def test_waiting_for_a_full_server_can_be_turned_off() -> None:
    assert attempts(RetryPolicy(), FakeClock()).delay_after(FULL, progressed=False) > 0
    with pytest.raises(outrider.OverloadedError, match="256 requests wait already"):
        attempts(RetryPolicy(retry_overloaded=False), FakeClock()).delay_after(FULL, progressed=False)


def test_backoff_grows_exponentially_to_its_limit() -> None:
    policy = RetryPolicy(max_attempts=99, initial_backoff_s=0.1, max_backoff_s=1.0, multiplier=2.0, jitter=0.0)
    calls = attempts(policy, FakeClock())
    delays = [calls.delay_after(DEAD, progressed=False) for _ in range(6)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert policy.backoff_s(1, Verdict.OVERLOADED, Random(0)) == 0.5
    assert policy.backoff_s(10_000, Verdict.TRANSIENT, Random(0)) == 1.0


HINTED = Failure(CODE.RESOURCE_EXHAUSTED, "OverloadedError: the queue is full; retry after 2500 ms")


def test_the_servers_hint_is_waited_for_and_grows_when_it_was_wrong() -> None:
    calls = attempts(RetryPolicy(jitter=0.0, max_backoff_s=5.0), FakeClock())
    assert [calls.delay_after(HINTED, progressed=False) for _ in range(3)] == pytest.approx([2.5, 5.0, 5.0])
    assert calls.delay_after(DEAD, progressed=True) == pytest.approx(0.1), "other failures have their own backoff"


def test_a_hint_is_never_undercut() -> None:
    policy, random = RetryPolicy(jitter=0.5), Random(0)
    delays = [policy.backoff_s(1, Verdict.OVERLOADED, random, 2.5) for _ in range(200)]
    assert 2.5 <= min(delays) < 2.6
    assert 3.6 < max(delays) <= 3.75
    assert policy.backoff_s(3, Verdict.OVERLOADED, random, 40.0) >= 40.0


def test_a_hint_of_minutes_is_raised_with_its_time() -> None:
    far = Failure(CODE.RESOURCE_EXHAUSTED, "OverloadedError: used up; retry after 60001 ms")
    with pytest.raises(outrider.OverloadedError, match="used up") as caught:
        attempts(RetryPolicy(), FakeClock()).delay_after(far, progressed=False)
    assert caught.value.retry_after_s == pytest.approx(60.001)
    assert attempts(RetryPolicy(max_hint_s=90.0), FakeClock()).delay_after(far, progressed=False) >= 60.0


@pytest.mark.parametrize("hint_s", [0.05, 0.25, 9.0])
def test_the_hint_of_the_servers_error_is_that_of_the_sdks(hint_s: float) -> None:
    error = Failure(*to_status(server_errors.OverloadedError("full", hint_s))).to_error()
    assert isinstance(error, outrider.OverloadedError)
    assert error.retry_after_s == hint_s
    assert Failure(*to_status(server_errors.OverloadedError("full"))).retry_after_s is None
    assert Failure(CODE.UNAVAILABLE, "UnavailableError: x; retry after 5 ms").retry_after_s is None


def test_jitter_takes_off_at_most_its_share() -> None:
    policy = RetryPolicy(initial_backoff_s=1.0, jitter=0.25)
    random = Random(0)
    delays = [policy.backoff_s(1, Verdict.TRANSIENT, random) for _ in range(1000)]
    assert 0.75 <= min(delays) < 0.76
    assert 0.99 < max(delays) <= 1.0


def test_the_time_limit_counts_from_the_first_attempt() -> None:
    clock = FakeClock()
    calls = attempts(RetryPolicy(jitter=0.0), clock, timeout_s=2.0)
    clock.sleep(5.0)
    assert calls.begin() == 2.0
    clock.sleep(0.5)
    assert calls.begin() == 1.5
    clock.sleep(9.0)
    assert calls.begin() == 0.0


def test_no_wait_goes_beyond_the_time_limit() -> None:
    clock = FakeClock()
    calls = attempts(RetryPolicy(initial_backoff_s=1.0, jitter=0.0), clock, timeout_s=1.5)
    calls.begin()
    clock.sleep(1.0)
    with pytest.raises(
        outrider.DeadlineExceededError, match=r"no answer within 1.5 s \(1 attempts; last: connection refused\)"
    ):
        calls.delay_after(DEAD, progressed=False)


def test_who_ran_out_of_time() -> None:
    clock = FakeClock()
    calls = attempts(RetryPolicy(), clock, timeout_s=1.0)
    calls.begin()
    late = Failure(CODE.DEADLINE_EXCEEDED, "Deadline Exceeded")
    with pytest.raises(outrider.DeadlineError) as server_side:
        calls.delay_after(late, progressed=False)
    assert not isinstance(server_side.value, outrider.DeadlineExceededError)
    clock.sleep(1.0)
    with pytest.raises(outrider.DeadlineExceededError):
        calls.delay_after(late, progressed=False)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_attempts", 0, "retry.max_attempts must be at least 1, got 0"),
        ("max_suspect_attempts", 0, "retry.max_suspect_attempts must be at least 1"),
        ("multiplier", 0.5, "retry.multiplier must be at least 1"),
        ("initial_backoff_s", -1.0, "retry.initial_backoff_s must not be negative"),
        ("max_backoff_s", float("nan"), "retry.max_backoff_s must not be negative"),
        ("max_hint_s", -1.0, "retry.max_hint_s must not be negative"),
        ("jitter", 1.5, "retry.jitter must be from 0 to 1"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ConfigurationError, match=message):
        RetryPolicy(**arguments)
