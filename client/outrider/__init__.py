"""Outrider's client SDK: text from large models over gRPC, drafted ahead and verified exactly.

::

    with outrider.Client("localhost:9000") as client:
        print(client.generate("Once upon a time", max_tokens=32).text)

Public are the names below, `outrider.testing` (a server for unit tests) and `outrider.v1` (the wire contract).
"""

from outrider.aio import AsyncClient, AsyncStream
from outrider.client import Client, Stream
from outrider.errors import (
    AuthenticationError,
    CancelledError,
    ConfigurationError,
    ConnectionLostError,
    ContextLengthError,
    DeadlineError,
    DeadlineExceededError,
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
from outrider.options import RequestOptions
from outrider.params import ChatMessage, SamplingParams, Speculation, SpeculationMode, VerificationRule
from outrider.results import (
    Delta,
    FinishReason,
    Generation,
    ModelInfo,
    Output,
    ReplicaInfo,
    RoutingCandidate,
    RoutingDecision,
    ServerInfo,
    TokenCount,
    TokenLogprob,
    TopLogprob,
)
from outrider.retry import RetryPolicy
from outrider.statistics import GenerationStats

__all__ = [
    # clients
    "Client",
    "AsyncClient",
    "Stream",
    "AsyncStream",
    "RetryPolicy",
    # requests
    "ChatMessage",
    "RequestOptions",
    "SamplingParams",
    "Speculation",
    "SpeculationMode",
    "VerificationRule",
    # results
    "Delta",
    "FinishReason",
    "Generation",
    "GenerationStats",
    "ModelInfo",
    "Output",
    "ReplicaInfo",
    "RoutingCandidate",
    "RoutingDecision",
    "ServerInfo",
    "TokenCount",
    "TokenLogprob",
    "TopLogprob",
    # errors
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
