"""Exceptions <-> gRPC status, in one place.

The class name travels twice: in the trailing metadata `outrider-error`, and as
the first word of the details (`ErrorName: message`), because proxies drop
trailing metadata of failed calls. Exceptions that are not ours become INTERNAL
without their text, which may hold anything; the log has class and traceback.
"""

import logging
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from workers.core.errors import (
    AuthenticationError,
    ConfigurationError,
    ContextLengthError,
    DeadlineError,
    IncompatibleError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OutriderError,
    OverloadedError,
    ProtocolViolationError,
    RefusedError,
    UnavailableError,
)
from workers.core.private_log import log_failure
from workers.core.shown import printable

__all__ = [
    "ERROR_METADATA_KEY",
    "RpcErrorLike",
    "code_of",
    "error_metadata",
    "from_rpc_error",
    "from_status",
    "to_status",
]

ERROR_METADATA_KEY = "outrider-error"
MAX_DETAILS_LENGTH = 2048  # HTTP/2 trailers are small; long texts would break the call itself

TOO_LARGE = "larger than max"  # gRPC's own words; its code alone would read as "overloaded"

_log = logging.getLogger(__name__)

_CODES: dict[type[OutriderError], grpc.StatusCode] = {
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    ContextLengthError: grpc.StatusCode.INVALID_ARGUMENT,
    ProtocolViolationError: grpc.StatusCode.INVALID_ARGUMENT,
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    RefusedError: grpc.StatusCode.PERMISSION_DENIED,
    AuthenticationError: grpc.StatusCode.UNAUTHENTICATED,
    IncompatibleError: grpc.StatusCode.FAILED_PRECONDITION,
    ConfigurationError: grpc.StatusCode.FAILED_PRECONDITION,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    DeadlineError: grpc.StatusCode.DEADLINE_EXCEEDED,
    InternalError: grpc.StatusCode.INTERNAL,
}
_BY_NAME = {kind.__name__: kind for kind in _CODES}
# What a code means when no name came with it (gRPC itself, or a foreign peer).
_BY_CODE: dict[grpc.StatusCode, type[OutriderError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.PERMISSION_DENIED: RefusedError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.UNIMPLEMENTED: IncompatibleError,
    grpc.StatusCode.FAILED_PRECONDITION: IncompatibleError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
}


class RpcErrorLike(Protocol):
    """What sync and asyncio RPC errors have in common."""

    def code(self) -> grpc.StatusCode: ...

    def details(self) -> str | None: ...


def code_of(error: BaseException) -> grpc.StatusCode:
    """The code of `to_status`, without a word in the log."""
    kind = _kind_of(error)
    if kind is not None:
        return _CODES[kind]
    return grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, DecodeError) else grpc.StatusCode.INTERNAL


def to_status(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Status code and details (`ErrorName: message`); logs the traceback of exceptions that are not ours."""
    kind = _kind_of(error)
    if kind is not None:
        return code_of(error), _fitting(f"{kind.__name__}: {error}")
    if isinstance(error, DecodeError):
        return code_of(error), f"{InvalidRequestError.__name__}: the message cannot be parsed"
    log_failure(_log, "unexpected error while serving a call", error)
    return code_of(error), f"{InternalError.__name__}: internal error"


def _fitting(message: str) -> str:
    """Lines that a trailer can carry: printable, and short in its bytes, of which gRPC writes three for each that is
    not ASCII. The end stays, where the hint when to come back stands."""
    most = MAX_DETAILS_LENGTH if message.isascii() else MAX_DETAILS_LENGTH // 4
    return printable(message, most, keep="\n")


def _kind_of(error: BaseException) -> type | None:
    """The class of ours that the error is; None when it is none."""
    return next((kind for kind in type(error).__mro__ if kind in _CODES), None)


def error_metadata(details: str) -> tuple[tuple[str, str], ...]:
    """Trailing metadata that goes with the details of `to_status`."""
    return ((ERROR_METADATA_KEY, details.partition(":")[0]),)


def from_status(code: grpc.StatusCode, details: str) -> OutriderError:
    """The exception that `to_status` was made from, or the nearest one for a status of foreign origin."""
    name, colon, message = details.partition(": ")
    kind = _BY_NAME.get(name) if colon else None
    if kind is not None:
        return kind(message)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE in details:
        return InvalidRequestError(f"a message exceeds the size limit of this channel (max_message_bytes): {details}")
    return _BY_CODE.get(code, InternalError)(details or code.name)


def from_rpc_error(error: RpcErrorLike) -> OutriderError:
    """As `from_status`, for the error that a gRPC call raised."""
    return from_status(error.code(), error.details() or "")
