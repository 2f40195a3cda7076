from outrider.v1 import common_pb2 as _common_pb2
from outrider.v1 import verifier_pb2 as _verifier_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SESSION_ERROR_CODE_UNSPECIFIED: _ClassVar[SessionErrorCode]
    SESSION_ERROR_CODE_UNKNOWN_SESSION: _ClassVar[SessionErrorCode]
    SESSION_ERROR_CODE_OVER_CAPACITY: _ClassVar[SessionErrorCode]
    SESSION_ERROR_CODE_STALE_EPOCH: _ClassVar[SessionErrorCode]
    SESSION_ERROR_CODE_CONTEXT_LENGTH: _ClassVar[SessionErrorCode]
    SESSION_ERROR_CODE_INVALID: _ClassVar[SessionErrorCode]
SESSION_ERROR_CODE_UNSPECIFIED: SessionErrorCode
SESSION_ERROR_CODE_UNKNOWN_SESSION: SessionErrorCode
SESSION_ERROR_CODE_OVER_CAPACITY: SessionErrorCode
SESSION_ERROR_CODE_STALE_EPOCH: SessionErrorCode
SESSION_ERROR_CODE_CONTEXT_LENGTH: SessionErrorCode
SESSION_ERROR_CODE_INVALID: SessionErrorCode

class VerifierFrame(_message.Message):
    __slots__ = ("hello", "opens", "commits", "closes")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    opens: _containers.RepeatedCompositeFieldContainer[OpenSession]
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    closes: _containers.RepeatedCompositeFieldContainer[CloseSession]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., opens: _Optional[_Iterable[_Union[OpenSession, _Mapping]]] = ..., commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ..., closes: _Optional[_Iterable[_Union[CloseSession, _Mapping]]] = ...) -> None: ...

class DrafterFrame(_message.Message):
    __slots__ = ("welcome", "proposals", "errors")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    proposals: _containers.RepeatedCompositeFieldContainer[Proposal]
    errors: _containers.RepeatedCompositeFieldContainer[SessionError]
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., proposals: _Optional[_Iterable[_Union[Proposal, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[SessionError, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "verifier_id", "incarnation", "model", "model_fingerprint", "tokenizer_hash", "vocab_size")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_HASH_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    verifier_id: str
    incarnation: int
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    def __init__(self, protocol_version: _Optional[int] = ..., verifier_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., model: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., tokenizer_hash: _Optional[str] = ..., vocab_size: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "drafter_id", "incarnation", "model", "model_fingerprint", "tokenizer_hash", "vocab_size", "max_sessions", "context_length")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_HASH_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    drafter_id: str
    incarnation: int
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    max_sessions: int
    context_length: int
    def __init__(self, protocol_version: _Optional[int] = ..., drafter_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., model: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., tokenizer_hash: _Optional[str] = ..., vocab_size: _Optional[int] = ..., max_sessions: _Optional[int] = ..., context_length: _Optional[int] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("max_depth", "max_width", "max_nodes")
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    max_depth: int
    max_width: int
    max_nodes: int
    def __init__(self, max_depth: _Optional[int] = ..., max_width: _Optional[int] = ..., max_nodes: _Optional[int] = ...) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("session_id", "epoch", "token_ids", "prompt_tokens", "sampling", "seed", "rule", "cache_salt", "budget", "traceparent")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    epoch: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_tokens: int
    sampling: _common_pb2.SamplingParams
    seed: int
    rule: _common_pb2.VerificationRule
    cache_salt: str
    budget: Budget
    traceparent: str
    def __init__(self, session_id: _Optional[int] = ..., epoch: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., prompt_tokens: _Optional[int] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., rule: _Optional[_Union[_common_pb2.VerificationRule, str]] = ..., cache_salt: _Optional[str] = ..., budget: _Optional[_Union[Budget, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("session_id", "epoch", "base_len", "token_ids", "budget", "paused")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    epoch: int
    base_len: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    budget: Budget
    paused: bool
    def __init__(self, session_id: _Optional[int] = ..., epoch: _Optional[int] = ..., base_len: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., budget: _Optional[_Union[Budget, _Mapping]] = ..., paused: _Optional[bool] = ...) -> None: ...

class CloseSession(_message.Message):
    __slots__ = ("session_id", "epoch")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    epoch: int
    def __init__(self, session_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("session_id", "epoch", "base_len", "tree", "distributions", "log_survival")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    LOG_SURVIVAL_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    epoch: int
    base_len: int
    tree: _common_pb2.TokenTree
    distributions: _containers.RepeatedCompositeFieldContainer[NodeDistribution]
    log_survival: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, session_id: _Optional[int] = ..., epoch: _Optional[int] = ..., base_len: _Optional[int] = ..., tree: _Optional[_Union[_common_pb2.TokenTree, _Mapping]] = ..., distributions: _Optional[_Iterable[_Union[NodeDistribution, _Mapping]]] = ..., log_survival: _Optional[_Iterable[float]] = ...) -> None: ...

class NodeDistribution(_message.Message):
    __slots__ = ("node_index", "distribution")
    NODE_INDEX_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    node_index: int
    distribution: _common_pb2.DraftDistribution
    def __init__(self, node_index: _Optional[int] = ..., distribution: _Optional[_Union[_common_pb2.DraftDistribution, _Mapping]] = ...) -> None: ...

class SessionError(_message.Message):
    __slots__ = ("session_id", "epoch", "code", "message")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    epoch: int
    code: SessionErrorCode
    message: str
    def __init__(self, session_id: _Optional[int] = ..., epoch: _Optional[int] = ..., code: _Optional[_Union[SessionErrorCode, str]] = ..., message: _Optional[str] = ...) -> None: ...
