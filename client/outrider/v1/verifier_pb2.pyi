from outrider.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DrafterEndpoint(_message.Message):
    __slots__ = ("drafter_id", "address", "incarnation")
    DRAFTER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    drafter_id: str
    address: str
    incarnation: int
    def __init__(self, drafter_id: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class VerifierGenerateRequest(_message.Message):
    __slots__ = ("request_id", "prompt_token_ids", "output_token_ids", "sampling", "speculation", "seed", "cache_salt", "deadline_ms", "drafters", "priority", "tenant", "tenant_weight")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TENANT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    output_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    speculation: _common_pb2.SpeculationParams
    seed: int
    cache_salt: str
    deadline_ms: int
    drafters: _containers.RepeatedCompositeFieldContainer[DrafterEndpoint]
    priority: int
    tenant: str
    tenant_weight: float
    def __init__(self, request_id: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., output_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., speculation: _Optional[_Union[_common_pb2.SpeculationParams, _Mapping]] = ..., seed: _Optional[int] = ..., cache_salt: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., drafters: _Optional[_Iterable[_Union[DrafterEndpoint, _Mapping]]] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., tenant_weight: _Optional[float] = ...) -> None: ...

class VerifierGenerateResponse(_message.Message):
    __slots__ = ("token_ids", "logprobs", "finish_reason", "stop_string", "stats")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_STRING_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprob]
    finish_reason: _common_pb2.FinishReason
    stop_string: str
    stats: _common_pb2.GenerationStats
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprob, _Mapping]]] = ..., finish_reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., stop_string: _Optional[str] = ..., stats: _Optional[_Union[_common_pb2.GenerationStats, _Mapping]] = ...) -> None: ...

class VerifierGetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifierGetInfoResponse(_message.Message):
    __slots__ = ("verifier_id", "incarnation", "model", "model_fingerprint", "tokenizer_hash", "vocab_size", "context_length", "dtype", "kv_block_size", "total_kv_blocks", "free_kv_blocks", "default_rule", "allowed_rules", "max_depth", "max_width", "max_nodes", "running_requests", "waiting_requests")
    VERIFIER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_HASH_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FREE_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_RULE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_RULES_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    verifier_id: str
    incarnation: int
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    context_length: int
    dtype: str
    kv_block_size: int
    total_kv_blocks: int
    free_kv_blocks: int
    default_rule: _common_pb2.VerificationRule
    allowed_rules: _containers.RepeatedScalarFieldContainer[_common_pb2.VerificationRule]
    max_depth: int
    max_width: int
    max_nodes: int
    running_requests: int
    waiting_requests: int
    def __init__(self, verifier_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., model: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., tokenizer_hash: _Optional[str] = ..., vocab_size: _Optional[int] = ..., context_length: _Optional[int] = ..., dtype: _Optional[str] = ..., kv_block_size: _Optional[int] = ..., total_kv_blocks: _Optional[int] = ..., free_kv_blocks: _Optional[int] = ..., default_rule: _Optional[_Union[_common_pb2.VerificationRule, str]] = ..., allowed_rules: _Optional[_Iterable[_Union[_common_pb2.VerificationRule, str]]] = ..., max_depth: _Optional[int] = ..., max_width: _Optional[int] = ..., max_nodes: _Optional[int] = ..., running_requests: _Optional[int] = ..., waiting_requests: _Optional[int] = ...) -> None: ...

class KvEventsRequest(_message.Message):
    __slots__ = ("incarnation", "after_sequence_number")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    after_sequence_number: int
    def __init__(self, incarnation: _Optional[int] = ..., after_sequence_number: _Optional[int] = ...) -> None: ...

class KvEventsResponse(_message.Message):
    __slots__ = ("incarnation", "sequence_number", "cleared", "stored_block_hashes", "removed_block_hashes", "load", "previous_sequence_number")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    STORED_BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    sequence_number: int
    cleared: bool
    stored_block_hashes: _containers.RepeatedScalarFieldContainer[int]
    removed_block_hashes: _containers.RepeatedScalarFieldContainer[int]
    load: ReplicaLoad
    previous_sequence_number: int
    def __init__(self, incarnation: _Optional[int] = ..., sequence_number: _Optional[int] = ..., cleared: _Optional[bool] = ..., stored_block_hashes: _Optional[_Iterable[int]] = ..., removed_block_hashes: _Optional[_Iterable[int]] = ..., load: _Optional[_Union[ReplicaLoad, _Mapping]] = ..., previous_sequence_number: _Optional[int] = ...) -> None: ...

class ReplicaLoad(_message.Message):
    __slots__ = ("running_requests", "waiting_requests", "total_kv_blocks", "free_kv_blocks", "waiting_tokens", "prefill_tokens_per_s", "max_running_requests", "response_ms")
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FREE_KV_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_MS_FIELD_NUMBER: _ClassVar[int]
    running_requests: int
    waiting_requests: int
    total_kv_blocks: int
    free_kv_blocks: int
    waiting_tokens: int
    prefill_tokens_per_s: float
    max_running_requests: int
    response_ms: float
    def __init__(self, running_requests: _Optional[int] = ..., waiting_requests: _Optional[int] = ..., total_kv_blocks: _Optional[int] = ..., free_kv_blocks: _Optional[int] = ..., waiting_tokens: _Optional[int] = ..., prefill_tokens_per_s: _Optional[float] = ..., max_running_requests: _Optional[int] = ..., response_ms: _Optional[float] = ...) -> None: ...
