"""Reading a gRPC status: which error it is, and whether another attempt can help.

Ray Serve reports one and the same event, a replica that died, with four codes,
depending on its ingress: INTERNAL (proxy), UNAVAILABLE (direct ingress),
CANCELLED and UNKNOWN (HAProxy). An error that Outrider's own server raised is
told apart by its details, "ErrorName: message".
"""

import re
from dataclasses import dataclass
from enum import Enum

import grpc

from outrider import errors, wire
from outrider.errors import OutriderError

__all__ = ["ENDED_EARLY", "Failure", "Verdict"]


class Verdict(Enum):
    """What to do after a failure."""

    FINAL = "another attempt would fail in the same way"
    TRANSIENT = "a replica or a connection is gone; try again"
    SUSPECT = "a replica died or the server has a defect; try again, but not often"
    OVERLOADED = "the server is full; try again later"


_BY_CODE: dict[grpc.StatusCode, tuple[type[OutriderError], Verdict]] = {
    grpc.StatusCode.OK: (errors.ConnectionLostError, Verdict.SUSPECT),  # see ENDED_EARLY
    grpc.StatusCode.CANCELLED: (errors.ConnectionLostError, Verdict.TRANSIENT),
    grpc.StatusCode.UNKNOWN: (errors.ConnectionLostError, Verdict.SUSPECT),
    grpc.StatusCode.INVALID_ARGUMENT: (errors.InvalidRequestError, Verdict.FINAL),
    grpc.StatusCode.DEADLINE_EXCEEDED: (errors.DeadlineError, Verdict.FINAL),
    grpc.StatusCode.NOT_FOUND: (errors.NotFoundError, Verdict.FINAL),
    grpc.StatusCode.ALREADY_EXISTS: (errors.InvalidRequestError, Verdict.FINAL),
    grpc.StatusCode.PERMISSION_DENIED: (errors.AuthenticationError, Verdict.FINAL),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (errors.OverloadedError, Verdict.OVERLOADED),
    grpc.StatusCode.FAILED_PRECONDITION: (errors.IncompatibleError, Verdict.FINAL),
    grpc.StatusCode.ABORTED: (errors.UnavailableError, Verdict.TRANSIENT),
    grpc.StatusCode.OUT_OF_RANGE: (errors.InvalidRequestError, Verdict.FINAL),
    grpc.StatusCode.UNIMPLEMENTED: (errors.IncompatibleError, Verdict.FINAL),
    grpc.StatusCode.INTERNAL: (errors.InternalError, Verdict.SUSPECT),
    grpc.StatusCode.UNAVAILABLE: (errors.ConnectionLostError, Verdict.TRANSIENT),
    grpc.StatusCode.DATA_LOSS: (errors.InternalError, Verdict.FINAL),
    grpc.StatusCode.UNAUTHENTICATED: (errors.AuthenticationError, Verdict.FINAL),
}

_BY_NAME: dict[str, tuple[type[OutriderError], Verdict]] = {
    "InvalidRequestError": (errors.InvalidRequestError, Verdict.FINAL),
    "ContextLengthError": (errors.ContextLengthError, Verdict.FINAL),
    "NotFoundError": (errors.NotFoundError, Verdict.FINAL),
    "RefusedError": (errors.RefusedError, Verdict.FINAL),
    "AuthenticationError": (errors.AuthenticationError, Verdict.FINAL),
    "IncompatibleError": (errors.IncompatibleError, Verdict.FINAL),
    "OverloadedError": (errors.OverloadedError, Verdict.OVERLOADED),
    "UnavailableError": (errors.UnavailableError, Verdict.TRANSIENT),
    "DeadlineError": (errors.DeadlineError, Verdict.FINAL),
    "ProtocolViolationError": (errors.ProtocolViolationError, Verdict.FINAL),
    "ConfigurationError": (errors.ConfigurationError, Verdict.FINAL),
    "InternalError": (errors.InternalError, Verdict.SUSPECT),
}

# gRPC's own words, on either side, for a message above the size limit; the code alone would read as "overloaded".
_TOO_LARGE = "larger than max"
# How the server tells in the details when there may be room: proxies drop the trailing metadata of failed calls.
_RETRY_AFTER = re.compile(r"; retry after (\d{1,9}) ms$")
# Ray Serve's proxy, which knows no application yet: it has just been started, or Serve's controller is starting.
_NO_ROUTES = "/ray.serve.RayServeAPIService/ListApplications"


@dataclass(frozen=True)
class Failure:
    """How one attempt ended."""

    code: grpc.StatusCode
    details: str

    @staticmethod
    def of(error: grpc.RpcError) -> "Failure":
        return Failure(error.code(), error.details() or "")

    @property
    def too_large(self) -> bool:
        return self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in self.details

    @property
    def verdict(self) -> Verdict:
        if self.code is grpc.StatusCode.NOT_FOUND and _NO_ROUTES in self.details:
            return Verdict.TRANSIENT  # a wrong name of an application reads the same, and fails after all attempts
        return Verdict.FINAL if self.too_large else self._kind[1]

    @property
    def retry_after_s(self) -> float | None:
        """The server's hint when to come back, of a refusal for lack of room."""
        found = _RETRY_AFTER.search(self.details) if self.verdict is Verdict.OVERLOADED else None
        return None if found is None else int(found[1]) / 1e3

    def to_error(self) -> OutriderError:
        """The SDK's error for this status."""
        name, _, message = self.details.partition(": ")
        if self.too_large:
            kind: type[OutriderError] = errors.InvalidRequestError
            message = f"a message is above the size limit (see max_message_bytes): {self.details}"
        elif name in _BY_NAME:
            kind = _BY_NAME[name][0]
        else:
            kind = self._kind[0]
            message = self.details or f"the server answered {self.code.name} without details"
        if issubclass(kind, errors.InvalidRequestError):
            message = wire.message_in_sdk_names(message)
        error = kind(message, status=self.code.name)
        if isinstance(error, errors.OverloadedError):
            error.retry_after_s = self.retry_after_s
        return error

    @property
    def _kind(self) -> tuple[type[OutriderError], Verdict]:
        name = self.details.partition(": ")[0]
        return _BY_NAME.get(name) or _BY_CODE[self.code]


# A stream that closed with status OK although an answer was not finished.
ENDED_EARLY = Failure(grpc.StatusCode.OK, "the stream ended before every answer was finished")
