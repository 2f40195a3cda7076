"""Settings of `outrider train data`."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from workers.core.config import ModelConfig
from workers.core.settings import Settings

__all__ = ["DataConfig"]


class DataConfig(Settings):
    """The target answers every prompt of a file; its answers are what drafts and heads learn from."""

    model: ModelConfig = Field(description="The target")
    prompts: Path | None = Field(None, description="JSON lines of prompts; None = the built-in prompt set")
    num_prompts: int = Field(10_000, ge=1, le=1_000_000, description="Of the built-in set, or at most of the file")
    output: Path = Field(description="Folder that receives the answers; a run goes on where it was interrupted")
    max_tokens: int = Field(160, ge=1, le=100_000, description="Longest answer, in tokens")
    temperatures: tuple[Annotated[float, Field(ge=0.0, le=2.0)], ...] = Field(
        (0.0, 0.8), min_length=1, description="Drawn for each prompt"
    )
    concurrency: int = Field(64, ge=1, le=1024, description="Requests in the engine at a time")
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _one_device(self) -> Self:
        if self.model.tensor_parallel_size != 1:
            raise ValueError("model.tensor_parallel_size must be 1: data is generated in one process")
        return self
