"""How tokens are chosen: the request's sampling parameters, validated once."""

from enum import StrEnum
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workers.core.errors import InvalidRequestError
from workers.core.shown import printable, shown

__all__ = ["SamplingParams", "SpeculationMode", "SpeculationParams", "VerificationRule", "validated"]

MAX_STOP_STRINGS = 16
MAX_STOP_STRING_LENGTH = 256
MAX_STOP_TOKENS = 64
MAX_LOGIT_BIASES = 1024
MAX_ANSWERS = 16

StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_STRING_LENGTH)]
TokenId = Annotated[int, Field(ge=0, lt=2**32)]
Bias = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]


class VerificationRule(StrEnum):
    """The rule by which draft tokens are accepted (docs/protocol.md)."""

    COUPLED = "coupled"
    REJECTION = "rejection"
    TYPICAL = "typical"

    @property
    def exact(self) -> bool:
        """Whether the output follows the target model's distribution exactly."""
        return self is not VerificationRule.TYPICAL


class SpeculationMode(StrEnum):
    OFF = "off"
    AUTO = "auto"
    ON = "on"


class _Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SamplingParams(_Params):
    """Sampling parameters of one request; names and meanings follow vLLM's."""

    temperature: float = Field(1.0, ge=0.0, le=100.0, allow_inf_nan=False, description="0 = greedy")
    top_k: int = Field(0, ge=0, lt=2**31, description="0 = keep all tokens")
    top_p: float = Field(1.0, gt=0.0, le=1.0, allow_inf_nan=False)
    min_p: float = Field(0.0, ge=0.0, le=1.0, allow_inf_nan=False)
    repetition_penalty: float = Field(1.0, ge=0.01, le=10.0, allow_inf_nan=False)
    presence_penalty: float = Field(0.0, ge=-2.0, le=2.0, allow_inf_nan=False)
    frequency_penalty: float = Field(0.0, ge=-2.0, le=2.0, allow_inf_nan=False)
    logit_bias: dict[TokenId, Bias] = Field(default_factory=dict, max_length=MAX_LOGIT_BIASES)
    stop: tuple[StopString, ...] = Field((), max_length=MAX_STOP_STRINGS)
    stop_token_ids: tuple[TokenId, ...] = Field((), max_length=MAX_STOP_TOKENS)
    max_tokens: int | None = Field(None, ge=1, lt=2**31, description="None = what the context has room for")
    min_tokens: int = Field(0, ge=0, lt=2**31)
    seed: int | None = Field(None, ge=0, lt=2**64)
    logprobs: int | None = Field(None, ge=0, le=20)
    n: int = Field(1, ge=1, le=MAX_ANSWERS)
    ignore_eos: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})")
        return self

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def uses_history(self) -> bool:
        """Whether logits depend on the tokens before them (evaluated along tree paths)."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise `InvalidRequestError` when a named token is not in the vocabulary."""
        for field, ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            bad = next((i for i in ids if i >= vocab_size), None)
            if bad is not None:
                raise InvalidRequestError(f"{field}: token id {bad} is outside the vocabulary (0 to {vocab_size - 1})")


class SpeculationParams(_Params):
    """Per-request speculation; limits above the server's own are lowered to them."""

    mode: SpeculationMode = SpeculationMode.AUTO
    max_depth: int | None = Field(None, ge=1, le=64)
    max_width: int | None = Field(None, ge=1, le=64)
    max_nodes: int | None = Field(None, ge=1, le=1024)
    rule: VerificationRule | None = Field(None, description="None = the server's default")


P = TypeVar("P", bound=_Params)


def validated(kind: type[P], values: dict[str, object]) -> P:
    """Build `kind` from `values`; an `InvalidRequestError` names the first bad field and the allowed range."""
    try:
        return kind(**values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = printable(".".join(str(part) for part in problem["loc"])) or kind.__name__
        message = problem["msg"].removeprefix("Value error, ")
        got = f" (got {shown(problem['input'])})" if problem["loc"] else ""
        raise InvalidRequestError(f"{where}: {message}{got}") from None
