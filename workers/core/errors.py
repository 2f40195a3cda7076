"""The exception tree of the data plane.

::

    OutriderError                     base of all, never raised itself
    ├── InvalidRequestError           the request is wrong in itself
    │   └── ContextLengthError        prompt + max_tokens exceed the context
    ├── NotFoundError                 no such model, request or session
    ├── RefusedError                  valid, but this server does not allow it
    ├── IncompatibleError             two components do not fit together
    ├── OverloadedError               a bounded queue or pool is full; try again later
    ├── UnavailableError              a replica is gone or shutting down; try another
    ├── DeadlineError                 the request's deadline passed
    ├── ProtocolViolationError        a peer broke the rules of docs/protocol.md
    ├── InternalError                 a peer failed in a way that nobody foresaw
    └── ConfigurationError            settings that cannot work; raised at start

`workers.rpc.errors` maps each to one gRPC status; the SDK raises its own class
of the same name. Messages say what was wrong and what is allowed.
"""

__all__ = [
    "ConfigurationError",
    "ContextLengthError",
    "DeadlineError",
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
    """Base class; its text is safe to show to clients."""


class InvalidRequestError(OutriderError):
    """A field of the request has a value that is not allowed."""


class ContextLengthError(InvalidRequestError):
    """Prompt and requested output do not fit into the model's context."""


class NotFoundError(OutriderError):
    """The named model, request or session does not exist."""


class RefusedError(OutriderError):
    """The request is valid, but this server is configured not to allow it."""


class IncompatibleError(OutriderError):
    """Two components (say, tokenizers of target and draft) do not fit together."""


class OverloadedError(OutriderError):
    """A bounded queue or pool is full; the same request may succeed later."""


class UnavailableError(OutriderError):
    """The replica is gone or draining; the same request may succeed elsewhere."""


class DeadlineError(OutriderError):
    """The request's deadline passed before it finished."""


class ProtocolViolationError(OutriderError):
    """A peer sent something that docs/protocol.md forbids."""


class InternalError(OutriderError):
    """A peer failed in a way that nobody foresaw; its log has the details."""


class ConfigurationError(OutriderError):
    """Settings that cannot work together; raised while starting."""
