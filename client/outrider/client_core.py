"""What the sync and the async client share: settings, request building, the state of a stream. No I/O."""

import os
from collections.abc import Callable, Mapping, Sequence
from random import Random, SystemRandom
from typing import Any

from outrider import checks, wire
from outrider.channels import channel_options, metadata_pairs
from outrider.errors import CancelledError, ConfigurationError, InvalidRequestError, OutriderError
from outrider.generation_call import GenerationCall
from outrider.options import RequestOptions
from outrider.results import Generation
from outrider.retry import Attempts, RetryPolicy
from outrider.target import checked_target

__all__ = [
    "API_KEY_VARIABLE",
    "DEFAULT_SILENCE_TIMEOUT_S",
    "Cancellation",
    "ClientCore",
    "Metadata",
    "StreamCore",
    "is_api_key",
]

API_KEY_VARIABLE = "OUTRIDER_API_KEY"

Metadata = Mapping[str, str] | Sequence[tuple[str, str]]

# A server that keeps a deadline answers within it; this much later the client stops waiting for one that does not.
DEADLINE_GRACE_S = 2.0
DEFAULT_SILENCE_TIMEOUT_S = 30.0
SILENCE_CHECKS = 10  # a silence is noticed this share of its limit too late at most ...
MAX_SILENCE_PERIOD_S = 1.0  # ... or this


class ClientCore:
    """Validated settings of a client."""

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None,
        silence_timeout: float | None,
        retry: RetryPolicy,
        api_key: str | None,
        metadata: Metadata,
        max_message_bytes: int,
        clock: Callable[[], float],
        random: Random | None,
    ) -> None:
        self.target = checked_target(target)
        self.channel_options = channel_options(max_message_bytes)
        self.metadata = _with_api_key(metadata_pairs(metadata), api_key)
        try:
            self._timeout_s = None if timeout is None else checks.seconds("timeout", timeout)
            self._silence_timeout_s = (
                None if silence_timeout is None else checks.seconds("silence_timeout", silence_timeout)
            )
        except InvalidRequestError as error:
            raise ConfigurationError(error.message) from None
        if not isinstance(retry, RetryPolicy):
            raise ConfigurationError(f"retry: expected RetryPolicy, got {type(retry).__name__}")
        self._retry = retry
        self._clock = clock
        # The system's generator: ids must differ between processes that forked or seeded `random` alike.
        self._random = random if random is not None else SystemRandom()

    @property
    def silence_period_s(self) -> float:
        """How often to look for streams that are silent for too long."""
        limit_s = self._silence_timeout_s
        return MAX_SILENCE_PERIOD_S if limit_s is None else min(MAX_SILENCE_PERIOD_S, limit_s / SILENCE_CHECKS)

    def attempts(self, deadline_s: float | None = None) -> Attempts:
        """The attempts of a new call, within the client's timeout and the call's deadline."""
        limits = [self._timeout_s, None if deadline_s is None else deadline_s + DEADLINE_GRACE_S]
        timeout_s = min((limit for limit in limits if limit is not None), default=None)
        return Attempts(self._retry, clock=self._clock, random=self._random, timeout_s=timeout_s)

    def generation(self, prompt: str | None, options: RequestOptions) -> GenerationCall:
        """A new generation; raises `InvalidRequestError` when it cannot be sent as it is."""
        request = wire.generate_request(prompt, options, self._random)
        attempts = self.attempts(request.deadline_ms / 1000 if request.deadline_ms else None)
        return GenerationCall(request, attempts, silence_timeout_s=self._silence_timeout_s)


def is_api_key(key: object) -> bool:
    """Whether a header can carry it."""
    return isinstance(key, str) and key.isascii() and key.isprintable() and " " not in key


def _with_api_key(
    metadata: tuple[tuple[str, str], ...], api_key: str | None, environ: Mapping[str, str] = os.environ
) -> tuple[tuple[str, str], ...]:
    """Headers with the key; a header of the caller's own goes before the environment's key."""
    has_own = any(key == "authorization" for key, _ in metadata)
    if api_key is not None and has_own:
        raise ConfigurationError("api_key: the metadata have an `authorization` of their own; give one of the two")
    key = (None if has_own else environ.get(API_KEY_VARIABLE)) if api_key is None else api_key
    if not key:
        return metadata
    if not is_api_key(key):
        raise ConfigurationError("api_key: expected printable ASCII without blanks")  # not repeated: it is a secret
    return (*metadata, ("authorization", f"Bearer {key}"))


class Cancellation:
    """Lets `cancel` reach the RPC that a reader is waiting for, from any thread.

    It stands apart from the stream so that the reading generator does not refer to its stream: dropping the last
    reference to a stream then ends the RPC at once.
    """

    def __init__(self) -> None:
        self._requested = False
        self._rpc: Any = None

    def attach(self, rpc: Any) -> None:
        """Watch this RPC; cancels it when `cancel` came before."""
        self._rpc = rpc
        if self._requested:
            rpc.cancel()

    def cancel(self) -> None:
        self._requested = True
        if self._rpc is not None:
            self._rpc.cancel()

    def check(self) -> None:
        """Raise `CancelledError` when this side has ended the call."""
        if self._requested:
            raise CancelledError("the stream was cancelled")


class StreamCore:
    """State of a stream that does not depend on how it is read."""

    def __init__(self, call: GenerationCall) -> None:
        self._call = call
        self._cancellation = Cancellation()
        self._failure: OutriderError | None = None

    @property
    def request_id(self) -> str:
        """Known from the start."""
        return self._call.request_id

    @property
    def seed(self) -> int:
        """Known from the start; send it again to get the same answer."""
        return self._call.seed

    @property
    def partial(self) -> Generation:
        """What has arrived so far."""
        return self._call.snapshot()

    def cancel(self) -> None:
        """End the request here and on the server, from any thread; a reader gets `outrider.CancelledError`."""
        self._cancellation.cancel()

    def _fail(self, error: OutriderError) -> None:
        self._failure = self._call.describe(error)

    def _check_readable(self) -> None:
        """Raise again what ended the stream: an error must not look like the end of the answer to a later reader."""
        if self._failure is not None:
            raise self._failure

    def _check_complete(self) -> None:
        """Raise when reading ended before the answer did: the stream was left, or its reader was interrupted."""
        if not self._call.complete:
            self._fail(CancelledError("the stream was left before its end"))
            self._check_readable()
