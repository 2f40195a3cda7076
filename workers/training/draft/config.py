"""Settings of `outrider train draft`."""

from pathlib import Path

from pydantic import Field

from workers.core.config import MAX_TOKENS, Layer
from workers.training.data_folders import DataFolders
from workers.training.optimizer_config import OptimizerConfig
from workers.training.run_settings import RunSettings

__all__ = ["DraftTrainingConfig"]


class DraftTrainingConfig(RunSettings):
    """A draft made of some of the target's layers, which learns the target's distributions on its own answers."""

    target: str = Field(min_length=1, description="Hub id, local folder or GGUF file")
    data: DataFolders
    output: Path = Field(description="Folder of the draft checkpoint")
    layers: tuple[Layer, ...] = Field(
        description="Layers of the target to start from, 0-based, ascending", min_length=1
    )
    vocabulary_size: int | None = Field(
        8192, ge=16, le=MAX_TOKENS, description="Most frequent answer tokens that the draft can propose; None = all"
    )
    state_weight: float = Field(
        0.0,
        ge=0.0,
        le=100.0,
        description="Of the distance to the target's last states, beside the cross-entropy",
    )
    max_length: int = Field(512, ge=16, le=100_000, description="Longer answers are cut, in tokens with their prompt")
    optimizer: OptimizerConfig = OptimizerConfig()
