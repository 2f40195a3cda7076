"""The only module that knows both the SDK's values and the messages on the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from random import Random
from typing import Any, TypeVar

from google.protobuf.message import Message

from outrider import checks
from outrider.errors import IncompatibleError, InvalidRequestError
from outrider.options import Messages, RequestOptions
from outrider.params import ChatMessage, SamplingParams, Speculation, VerificationRule
from outrider.results import (
    Delta,
    FinishReason,
    ModelInfo,
    ReplicaInfo,
    RoutingCandidate,
    RoutingDecision,
    ServerInfo,
    TokenCount,
    TokenLogprob,
    TopLogprob,
)
from outrider.statistics import GenerationStats
from outrider.v1 import common_pb2, generation_pb2

__all__ = [
    "count_request",
    "delta",
    "finish_reason",
    "generate_request",
    "message_in_sdk_names",
    "model_info",
    "routing_decisions",
    "server_info",
    "stats",
    "token_count",
]

T = TypeVar("T")
_SAMPLING_FIELDS = tuple(spec.name for spec in fields(SamplingParams))
MAX_REQUEST_ID_LENGTH = 128
# Fields whose names on the wire are not those of the SDK.
_SDK_NAMES = {"max_depth": "depth", "max_width": "width", "max_nodes": "nodes"}


def generate_request(prompt: str | None, options: RequestOptions, random: Random) -> generation_pb2.GenerateRequest:
    """Build the first attempt's message; draws seed and request id when they are not given.

    Both have to be known on this side: a broken stream is resumed under the same id with the same noise.
    """
    _check_names(options)
    request = generation_pb2.GenerateRequest(
        request_id=_request_id(options.get("request_id"), random),
        model=checks.text("model", options.get("model", "")),
        sampling=_sampling_message(_sampling(options), random),
        cache_salt=checks.text("cache_salt", options.get("cache_salt", "")),
        session_id=checks.text("session_id", options.get("session_id", "")),
    )
    _set_prompt(request, prompt, options.get("messages"), options.get("token_ids"))
    speculation = options.get("speculation")
    if speculation is not None:
        request.speculation.CopyFrom(_speculation_message(speculation))
    priority = options.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or not -(2**31) <= priority < 2**31:
        raise InvalidRequestError(f"priority: expected an integer from -10 to 10, got {checks.shown(priority)}")
    request.priority = priority
    deadline = options.get("deadline")
    if deadline is not None:
        request.deadline_ms = max(1, round(checks.seconds("deadline", deadline) * 1000))
    return request


def count_request(prompt: str | None, messages: Messages | None) -> generation_pb2.CountTokensRequest:
    request = generation_pb2.CountTokensRequest()
    _set_prompt(request, prompt, messages, None, allowed="a text prompt or messages")
    return request


def _check_names(options: RequestOptions) -> None:
    allowed = RequestOptions.__required_keys__ | RequestOptions.__optional_keys__
    for name in options:
        if name not in allowed:
            close = get_close_matches(name, allowed, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidRequestError(
                f"unknown option {checks.shown(name)}{hint}; allowed are {', '.join(sorted(allowed))}"
            )


def _request_id(given: str | None, random: Random) -> str:
    if given is None:
        return f"{random.getrandbits(128):032x}"
    if not 0 < len(checks.text("request_id", given)) <= MAX_REQUEST_ID_LENGTH:
        raise InvalidRequestError(f"request_id: expected 1 to {MAX_REQUEST_ID_LENGTH} characters, got {len(given)}")
    return given


def _sampling(options: RequestOptions) -> SamplingParams:
    base = options.get("sampling")
    if base is not None and not isinstance(base, SamplingParams):
        raise InvalidRequestError(f"sampling: expected SamplingParams, got {type(base).__name__}")
    values: dict[str, Any] = {} if base is None else {name: getattr(base, name) for name in _SAMPLING_FIELDS}
    values.update((name, value) for name, value in options.items() if name in _SAMPLING_FIELDS)
    return SamplingParams(**values)


def _sampling_message(params: SamplingParams, random: Random) -> common_pb2.SamplingParams:
    values: dict[str, Any] = {name: getattr(params, name) for name in _SAMPLING_FIELDS}
    if params.seed is None:
        values["seed"] = random.getrandbits(64)
    return common_pb2.SamplingParams(**{name: value for name, value in values.items() if value is not None})


def _speculation_message(speculation: Speculation) -> common_pb2.SpeculationParams:
    if not isinstance(speculation, Speculation):
        raise InvalidRequestError(
            f"speculation: expected Speculation.off(), .auto() or .on(...), got {type(speculation).__name__}"
        )
    rule = "UNSPECIFIED" if speculation.rule is None else speculation.rule.name
    return common_pb2.SpeculationParams(
        mode=f"SPECULATION_MODE_{speculation.mode.name}",
        max_depth=speculation.depth,
        max_width=speculation.width,
        max_nodes=speculation.nodes,
        rule=f"VERIFICATION_RULE_{rule}",
    )


def _set_prompt(
    request: generation_pb2.GenerateRequest | generation_pb2.CountTokensRequest,
    prompt: str | None,
    messages: Messages | None,
    token_ids: Sequence[int] | None,
    *,
    allowed: str = "a text prompt, messages or token_ids",
) -> None:
    if sum(given is not None for given in (prompt, messages, token_ids)) != 1:
        raise InvalidRequestError(f"give exactly one of {allowed}")
    if prompt is not None:
        request.text = checks.text("prompt", prompt)
    elif messages is not None:
        request.chat.CopyFrom(_chat_message(messages))
    elif token_ids is not None and isinstance(request, generation_pb2.GenerateRequest):
        request.tokens.CopyFrom(generation_pb2.TokenIds(token_ids=checks.token_ids("token_ids", token_ids)))


def _chat_message(messages: Messages) -> generation_pb2.ChatMessages:
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise InvalidRequestError("messages: expected a sequence of at least one chat message")
    chat = [_message(index, message) for index, message in enumerate(messages)]
    return generation_pb2.ChatMessages(
        messages=[generation_pb2.ChatMessage(role=message.role, content=message.content) for message in chat]
    )


def _message(index: int, value: ChatMessage | Mapping[str, str]) -> ChatMessage:
    try:
        return ChatMessage.of(value)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"messages[{index}]: {error.message}") from None


def message_in_sdk_names(message: str) -> str:
    """The server's words about a bad field, "name: ...", with the name that the SDK's caller wrote."""
    name, colon, rest = message.partition(": ")
    return f"{_SDK_NAMES.get(name, name)}{colon}{rest}"


def delta(message: generation_pb2.GenerationDelta) -> Delta:
    logprobs = tuple(
        TokenLogprob(item.token_id, item.logprob, tuple(TopLogprob(top.token_id, top.logprob) for top in item.top))
        for item in message.logprobs
    )
    return Delta(message.index, message.text, tuple(message.token_ids), logprobs)


def stats(message: common_pb2.GenerationStats) -> GenerationStats:
    return _same_names(GenerationStats, message)


def finish_reason(value: int) -> FinishReason:
    return FinishReason(_enum_name(common_pb2.FinishReason, value, "FINISH_REASON_"))


def token_count(message: generation_pb2.CountTokensResponse) -> TokenCount:
    return _same_names(TokenCount, message)


def model_info(message: generation_pb2.GetModelInfoResponse) -> ModelInfo:
    return _same_names(
        ModelInfo,
        message,
        default_rule=_rule(message.default_rule),
        allowed_rules=tuple(_rule(rule) for rule in message.allowed_rules),
    )


def server_info(message: generation_pb2.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(message.version, tuple(_same_names(ReplicaInfo, replica) for replica in message.replicas))


def routing_decisions(message: generation_pb2.ExplainRoutingResponse) -> tuple[RoutingDecision, ...]:
    return tuple(
        _same_names(RoutingDecision, one, candidates=tuple(map(_routing_candidate, one.candidates)))
        for one in message.decisions
    )


def _routing_candidate(message: generation_pb2.RoutingCandidate) -> RoutingCandidate:
    return _same_names(RoutingCandidate, message, terms={term.name: term.cost for term in message.terms})


def _rule(value: int) -> VerificationRule:
    return VerificationRule(_enum_name(common_pb2.VerificationRule, value, "VERIFICATION_RULE_"))


def _enum_name(enum: Any, value: int, prefix: str) -> str:
    """Lower-case name of an enum value without its prefix."""
    if value == 0 or value not in enum.values():
        what = prefix.rstrip("_").lower()
        raise IncompatibleError(
            f"the server sent {what} {value}, which this version of the SDK does not know; update it"
        )
    return str(enum.Name(value)).removeprefix(prefix).lower()


def _same_names(kind: type[T], message: Message, **given: object) -> T:
    """Build dataclass `kind` from the fields of `message` that carry the same names; repeated ones become tuples."""
    values: dict[str, object] = dict(given)
    for spec in fields(kind):  # type: ignore[arg-type]  # T is one of our dataclasses
        if spec.name not in values:
            value = getattr(message, spec.name)
            values[spec.name] = value if isinstance(value, str | int | float) else tuple(value)
    return kind(**values)
