"""Sampling and speculation parameters: wire <-> core."""

from outrider.v1 import common_pb2 as pb

from workers.core.errors import InvalidRequestError
from workers.core.request import PRIORITY_RANGE
from workers.core.sampling_params import (
    SamplingParams,
    SpeculationMode,
    SpeculationParams,
    VerificationRule,
    validated,
)

__all__ = [
    "priority_from_wire",
    "rule_from_wire",
    "rule_to_wire",
    "sampling_from_wire",
    "sampling_to_wire",
    "speculation_from_wire",
    "speculation_to_wire",
]

_OPTIONAL = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "min_tokens",
    "seed",
    "logprobs",
    "n",
    "ignore_eos",
)
_RULES = {
    VerificationRule.COUPLED: pb.VERIFICATION_RULE_COUPLED,
    VerificationRule.REJECTION: pb.VERIFICATION_RULE_REJECTION,
    VerificationRule.TYPICAL: pb.VERIFICATION_RULE_TYPICAL,
}
_RULES_FROM_WIRE: dict[int, VerificationRule] = {wire: rule for rule, wire in _RULES.items()}
_MODES = {
    SpeculationMode.OFF: pb.SPECULATION_MODE_OFF,
    SpeculationMode.AUTO: pb.SPECULATION_MODE_AUTO,
    SpeculationMode.ON: pb.SPECULATION_MODE_ON,
}
_MODES_FROM_WIRE: dict[int, SpeculationMode] = {wire: mode for mode, wire in _MODES.items()}


def sampling_from_wire(message: pb.SamplingParams) -> SamplingParams:
    """Fields that are not set take the defaults; `InvalidRequestError` for values outside their range."""
    values: dict[str, object] = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}
    if message.logit_bias:
        values["logit_bias"] = dict(message.logit_bias)
    if message.stop:
        values["stop"] = tuple(message.stop)
    if message.stop_token_ids:
        values["stop_token_ids"] = tuple(message.stop_token_ids)
    return validated(SamplingParams, values)


def sampling_to_wire(params: SamplingParams) -> pb.SamplingParams:
    """Every field with a value is set, so that the reader's defaults do not matter."""
    values = {name: getattr(params, name) for name in _OPTIONAL}
    return pb.SamplingParams(
        **{name: value for name, value in values.items() if value is not None},
        logit_bias=params.logit_bias,
        stop=params.stop,
        stop_token_ids=params.stop_token_ids,
    )


def priority_from_wire(value: int) -> int:
    """`InvalidRequestError` for a number outside the range."""
    first, last = PRIORITY_RANGE
    if not first <= value <= last:
        raise InvalidRequestError(f"priority: {first} (served first) to {last} (served last) are allowed (got {value})")
    return value


def rule_from_wire(value: int) -> VerificationRule | None:
    """None for UNSPECIFIED; `InvalidRequestError` for a number that is no rule."""
    if value == pb.VERIFICATION_RULE_UNSPECIFIED:
        return None
    rule = _RULES_FROM_WIRE.get(value)
    if rule is None:
        raise InvalidRequestError(f"rule: {value} is not a VerificationRule; allowed: {_names(pb.VerificationRule)}")
    return rule


def rule_to_wire(rule: VerificationRule | None) -> pb.VerificationRule:
    return pb.VERIFICATION_RULE_UNSPECIFIED if rule is None else _RULES[rule]


def speculation_from_wire(message: pb.SpeculationParams) -> SpeculationParams:
    """An unset mode means AUTO, unset limits mean the server's; `InvalidRequestError` for bad values."""
    values: dict[str, object] = {"rule": rule_from_wire(message.rule)}
    for name in ("max_depth", "max_width", "max_nodes"):
        if message.HasField(name):
            values[name] = getattr(message, name)
    if message.mode != pb.SPECULATION_MODE_UNSPECIFIED:
        mode = _MODES_FROM_WIRE.get(message.mode)
        if mode is None:
            raise InvalidRequestError(
                f"mode: {message.mode} is not a SpeculationMode; allowed: {_names(pb.SpeculationMode)}"
            )
        values["mode"] = mode
    return validated(SpeculationParams, values)


def speculation_to_wire(params: SpeculationParams) -> pb.SpeculationParams:
    return pb.SpeculationParams(
        mode=_MODES[params.mode],
        max_depth=params.max_depth,
        max_width=params.max_width,
        max_nodes=params.max_nodes,
        rule=rule_to_wire(params.rule),
    )


def _names(enum: type) -> str:
    items: list[tuple[str, int]] = enum.items()  # type: ignore[attr-defined]
    return ", ".join(f"{name} ({value})" for name, value in items if value)
