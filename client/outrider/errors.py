"""What can go wrong, as one exception tree.

::

    OutriderError                     base of all
    ├── InvalidRequestError           the request is wrong in itself
    │   └── ContextLengthError        prompt + max_tokens exceed the context
    ├── NotFoundError                 no such model
    ├── RefusedError                  valid, but this server does not allow it
    ├── AuthenticationError           credentials are missing, wrong or not sufficient
    ├── IncompatibleError             server and SDK (or two components of the server) do not fit together
    ├── OverloadedError               the server's queue or a limit of the key is full, and stayed so over all attempts
    ├── UnavailableError              the server is gone or shutting down, and stayed so over all attempts
    │   └── ConnectionLostError       it could not be reached, or a stream broke and could not be resumed
    ├── DeadlineError                 the server stopped the request: out of time
    │   └── DeadlineExceededError     the client stopped waiting: out of time
    ├── ProtocolViolationError        the other side broke the rules of the wire contract
    ├── InternalError                 the server failed and does not say why
    ├── ConfigurationError            settings of the client that cannot work
    └── CancelledError                the call was cancelled here, or the client was closed

An error of the server arrives as a gRPC status whose details read
"ErrorName: message"; the SDK raises its own class of that name.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.results import Generation

__all__ = [
    "AuthenticationError",
    "CancelledError",
    "ConfigurationError",
    "ConnectionLostError",
    "ContextLengthError",
    "DeadlineError",
    "DeadlineExceededError",
    "IncompatibleError",
    "InternalError",
    "InvalidRequestError",
    "NotFoundError",
    "OutriderError",
    "OverloadedError",
    "ProtocolViolationError",
    "RefusedError",
    "UnavailableError",
]


class OutriderError(Exception):
    """Base class.

    Attributes:
        message: What was wrong and, where that helps, what is allowed.
        status: Name of the gRPC status that it came with; None when it arose in the SDK.
        request_id: The request that failed; "" when there was none.
        partial: What had arrived of the answer when a generation failed.
    """

    def __init__(self, message: str, *, status: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = ""
        self.partial: Generation | None = None


class InvalidRequestError(OutriderError):
    """A field of the request has a value that is not allowed."""


class ContextLengthError(InvalidRequestError):
    """Prompt and requested output do not fit into the model's context."""


class NotFoundError(OutriderError):
    """The named model does not exist here."""


class RefusedError(OutriderError):
    """The request is valid, but this server is configured not to allow it."""


class AuthenticationError(OutriderError):
    """Credentials are missing, wrong or do not allow this."""


class IncompatibleError(OutriderError):
    """Server and SDK, or two components of the server, do not fit together."""


class OverloadedError(OutriderError):
    """The server's queue is full, or a limit of the API key is reached; the same request may succeed later.

    Attributes:
        retry_after_s: When the server expects room, in seconds from now; None when it does not say.
    """

    retry_after_s: float | None = None


class UnavailableError(OutriderError):
    """The server is gone or draining; the same request may succeed later."""


class ConnectionLostError(UnavailableError):
    """The server could not be reached, or the stream broke and could not be resumed."""


class DeadlineError(OutriderError):
    """The server stopped the request because its time was over."""


class DeadlineExceededError(DeadlineError):
    """The client stopped waiting because its time limit had passed."""


class ProtocolViolationError(OutriderError):
    """The other side sent something that the wire contract forbids."""


class InternalError(OutriderError):
    """The server failed and does not say why."""


class ConfigurationError(OutriderError):
    """Settings of the client that cannot work."""


class CancelledError(OutriderError):
    """The call was cancelled by this side, or its client was closed."""
