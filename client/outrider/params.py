"""What a caller may ask for: chat messages, sampling parameters, speculation.

Types are checked here, at once; whether a value is in range is for the server
to say, which knows its limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TypedDict

from outrider import checks
from outrider.errors import InvalidRequestError

__all__ = ["ChatMessage", "SamplingFields", "SamplingParams", "Speculation", "SpeculationMode", "VerificationRule"]

CHAT_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation; `role` is "system", "user" or "assistant"."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in CHAT_ROLES:
            allowed = ", ".join(repr(role) for role in CHAT_ROLES)
            raise InvalidRequestError(f"unknown chat role {checks.shown(self.role)}; allowed are {allowed}")
        checks.text("content", self.content)

    @staticmethod
    def of(value: "ChatMessage | Mapping[str, str]") -> "ChatMessage":
        """Accept a message as it is, or a mapping with the keys "role" and "content"."""
        if isinstance(value, ChatMessage):
            return value
        if not isinstance(value, Mapping) or set(value) != {"role", "content"}:
            raise InvalidRequestError(
                f'a chat message is {{"role": ..., "content": ...}} or ChatMessage, got {checks.shown(value)}'
            )
        return ChatMessage(value["role"], value["content"])


class SamplingFields(TypedDict, total=False):
    """`SamplingParams` as keyword arguments."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    max_tokens: int | None
    min_tokens: int | None
    seed: int | None
    logprobs: int | None
    n: int | None
    ignore_eos: bool | None


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen. None = the server's default, which proto/outrider/v1/common.proto states."""

    temperature: float | None = None
    """0 = greedy (argmax)."""
    top_k: int | None = None
    """Keep the k most probable tokens; 0 = all."""
    top_p: float | None = None
    """Keep the smallest set of tokens with at least this probability mass."""
    min_p: float | None = None
    """Drop tokens less probable than this share of the most probable one."""
    repetition_penalty: float | None = None
    """Weakens tokens seen in prompt or output; 1 = off."""
    presence_penalty: float | None = None
    """Subtracted once from logits of tokens seen in the output."""
    frequency_penalty: float | None = None
    """Subtracted per occurrence from logits of tokens seen in the output."""
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    """Added to the logit of a token id."""
    stop: str | Sequence[str] | None = None
    """The answer ends before any of these texts."""
    stop_token_ids: Sequence[int] | None = None
    """The answer ends after any of these tokens."""
    max_tokens: int | None = None
    """The most tokens to generate; default: what the context has room for."""
    min_tokens: int | None = None
    """No end of sequence and no stop token before this many tokens."""
    seed: int | None = None
    """Same model, prompt, parameters and seed: same text. Drawn by the SDK when it is not given."""
    logprobs: int | None = None
    """Return log probabilities, with this many alternatives per token."""
    n: int | None = None
    """How many independent answers."""
    ignore_eos: bool | None = None
    """Do not stop at the end-of-sequence token."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if value is not None:
                # Sequences become tuples and mappings copies: the value must not change under a resumed stream.
                object.__setattr__(self, spec.name, _CHECKS[spec.name](spec.name, value))


_CHECKS = {
    "temperature": checks.number,
    "top_k": checks.size,
    "top_p": checks.number,
    "min_p": checks.number,
    "repetition_penalty": checks.number,
    "presence_penalty": checks.number,
    "frequency_penalty": checks.number,
    "logit_bias": checks.bias,
    "stop": checks.texts,
    "stop_token_ids": checks.token_ids,
    "max_tokens": checks.size,
    "min_tokens": checks.size,
    "seed": checks.seed,
    "logprobs": checks.count,
    "n": checks.count,
    "ignore_eos": checks.flag,
}


class VerificationRule(StrEnum):
    """The rule by which drafted tokens are accepted; `TYPICAL` is not exact."""

    COUPLED = "coupled"
    REJECTION = "rejection"
    TYPICAL = "typical"


class SpeculationMode(StrEnum):
    OFF = "off"
    AUTO = "auto"
    ON = "on"


@dataclass(frozen=True)
class Speculation:
    """How the server may draft ahead for one request. Build it with `off`, `auto` or `on`.

    Limits above the server's own are lowered to them; None = the server's default.
    """

    mode: SpeculationMode
    depth: int | None = None
    """Deepest node of the token tree."""
    width: int | None = None
    """Most children of one node."""
    nodes: int | None = None
    """Most nodes of one tree."""
    rule: VerificationRule | None = None

    def __post_init__(self) -> None:
        for name in ("depth", "width", "nodes"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        object.__setattr__(self, "mode", checks.choice("mode", self.mode, SpeculationMode))
        if self.rule is not None:
            object.__setattr__(self, "rule", checks.choice("rule", self.rule, VerificationRule))

    @classmethod
    def off(cls) -> "Speculation":
        """Decode plainly."""
        return cls(SpeculationMode.OFF)

    @classmethod
    def auto(cls, *, rule: VerificationRule | str | None = None) -> "Speculation":
        """Let the server decide, step by step."""
        return cls(SpeculationMode.AUTO, rule=rule)  # type: ignore[arg-type]  # __post_init__ parses it

    @classmethod
    def on(
        cls,
        *,
        depth: int | None = None,
        width: int | None = None,
        nodes: int | None = None,
        rule: VerificationRule | str | None = None,
    ) -> "Speculation":
        """Always speculate, with trees of at most this size."""
        return cls(SpeculationMode.ON, depth, width, nodes, rule)  # type: ignore[arg-type]  # __post_init__ parses it
