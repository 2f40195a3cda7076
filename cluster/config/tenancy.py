"""Settings of API keys and of what each may ask for."""

from pydantic import Field

from workers.core.config import MAX_TOKENS
from workers.core.request import PRIORITY_RANGE
from workers.core.settings import Settings

__all__ = ["KeyLimits", "TenancyConfig"]


class KeyLimits(Settings):
    """What one key may ask of one gateway. None = no limit."""

    max_concurrent_requests: int | None = Field(None, ge=1, le=100_000, description="Beyond it: RESOURCE_EXHAUSTED")
    tokens_per_minute: int | None = Field(
        None, ge=1, le=10**9, description="Prompt and output tokens; the prompt's are needed to begin"
    )
    burst_tokens: int | None = Field(
        None, ge=1, le=10**9, description="Tokens that can be saved up; None = those of one minute"
    )
    max_output_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="Upper bound of max_tokens, and its default"
    )
    most_urgent_priority: int = Field(
        0, ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1], description="Smallest number that `priority` may have"
    )
    weight: float = Field(1.0, ge=0.01, le=100.0, description="Share of the verifiers against that of other keys")


class TenancyConfig(Settings):
    """Who may call the gateways."""

    keys_file: str | None = Field(
        None, description="YAML or JSON file of `outrider keys`; None = everybody may call", min_length=1
    )
    default_limits: KeyLimits = Field(
        KeyLimits(), description="Of keys without limits of their own, and of everybody where there is no keys_file"
    )
    divide_limits: bool = Field(
        False, description="Divide concurrency and token rate by num_replicas: limits of all gateways together"
    )
    share_prefix_cache: bool = Field(
        False, description="Let different keys share cached prompts; how fast an answer begins then tells of others'"
    )
