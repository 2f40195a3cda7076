"""Settings of `outrider probe`."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from workers.core.config import DrafterConfig, LayerSkipConfig, MedusaConfig, ModelConfig, NgramConfig
from workers.core.sampling_params import VerificationRule
from workers.core.settings import Settings
from workers.probe.findings import Tree

__all__ = ["ProbeConfig", "ProposerConfig", "TreeConfig"]


class TreeConfig(Settings):
    """A tree to try."""

    depth: int = Field(ge=1, le=64)
    width: int = Field(1, ge=1, le=64)
    nodes: int = Field(ge=1, le=1024)

    @property
    def tree(self) -> Tree:
        return Tree(self.depth, self.width, self.nodes)


class ProposerConfig(Settings):
    """One proposer to try; a drafter runs in a process of its own and is spoken to over gRPC."""

    method: Literal["draft_model", "ngram", "medusa", "layerskip"]
    drafter: DrafterConfig | None = Field(None, description="For method draft_model")
    ngram: NgramConfig = NgramConfig()
    medusa: MedusaConfig | None = Field(None, description="For method medusa")
    layerskip: LayerSkipConfig | None = Field(None, description="For method layerskip")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.method == "draft_model") != (self.drafter is not None):
            raise ValueError("method draft_model needs `drafter`, and no other method takes one")
        if self.method == "medusa" and self.medusa is None:
            raise ValueError("method medusa needs `medusa.model`, the folder of the heads")
        if self.method == "layerskip" and self.layerskip is None:
            raise ValueError("method layerskip needs `layerskip.exit_layer`, the last layer that drafts")
        if self.method == "ngram" and self.ngram.combine:
            raise ValueError("ngram.combine unites prompt lookup with another method; method ngram has none beside it")
        return self


class ProbeConfig(Settings):
    """Target, proposers and prompts."""

    target: ModelConfig
    proposers: dict[str, ProposerConfig] = Field(min_length=1, description="By a name of your choice")
    prompts: Path = Field(description='JSON lines: {"prompt": "…"} or {"messages": […]}')
    max_prompts: int = Field(24, ge=1, le=100_000)
    max_tokens: int = Field(64, ge=2, le=100_000, description="Of each answer")
    trees: tuple[TreeConfig, ...] = Field(
        (TreeConfig(depth=3, nodes=3), TreeConfig(depth=4, width=3, nodes=8), TreeConfig(depth=5, width=4, nodes=16)),
        min_length=1,
    )
    rules: tuple[VerificationRule, ...] = Field((VerificationRule.COUPLED,), min_length=1)
    temperatures: tuple[Annotated[float, Field(ge=0.0, le=2.0)], ...] = Field((0.0, 0.8), min_length=1)
    concurrency: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field((1, 8, 32), min_length=1)
    speed_prompts: int = Field(
        2, ge=1, le=100_000, description="Answers in each round of a speed measurement, at least"
    )
    rounds: int = Field(5, ge=1, le=100, description="Rounds of each speed measurement; the median counts")
    seed: int = Field(0, ge=0, lt=2**63)
