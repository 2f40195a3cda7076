"""The exception tree of the data plane.

::

    OutriderError                     base of all, never raised itself
    ├── InvalidRequestError           the request is wrong in itself
    │   └── ContextLengthError        prompt + max_tokens exceed the context
    ├── NotFoundError                 no such model, request or session
    ├── RefusedError                  valid, but this server does not allow it
    ├── AuthenticationError           the API key or the internal plane's token is missing or wrong
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

import re

__all__ = [
    "AuthenticationError",
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


_RETRY_AFTER = re.compile(r"; retry after (\d{1,9}) ms$")
_MAX_HINT_S = 86_400.0  # readers take nine digits of milliseconds at most; nobody waits for so long


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


class AuthenticationError(OutriderError):
    """Credentials are missing or wrong. The text never says which, nor anything about valid ones."""


class OverloadedError(OutriderError):
    """A bounded queue or pool is full, or a limit is reached; the same request may succeed later.

    The hint when to come back is part of the text, `...; retry after N ms`, because proxies drop the trailing metadata
    of failed calls: what was made from the text has the hint again. It is at least 1 ms and at most a day.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        if retry_after_s is not None:
            message = f"{message}; retry after {max(1, round(1e3 * min(_MAX_HINT_S, retry_after_s)))} ms"
        super().__init__(message)
        found = _RETRY_AFTER.search(message)
        self.retry_after_s = None if found is None else int(found[1]) / 1e3


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
