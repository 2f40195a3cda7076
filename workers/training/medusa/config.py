"""Settings of `outrider train medusa`."""

from pathlib import Path

from pydantic import Field

from workers.core.settings import Settings
from workers.training.optimizer_config import OptimizerConfig

__all__ = ["HeadsSettings", "MedusaTrainingConfig"]


class HeadsSettings(Settings):
    """What the heads look like, and what they learn."""

    num_heads: int = Field(4, ge=1, le=16, description="Tokens that are guessed ahead")
    num_layers: int = Field(1, ge=1, le=8, description="Residual blocks of each head")
    shared_head: bool = Field(True, description="All heads use the target's LM head, which stays as it is")
    vocabulary_size: int | None = Field(
        8192, ge=16, description="Most frequent answer tokens that heads can propose; None = all"
    )
    decay: float = Field(0.8, gt=0.0, le=1.0, description="Weight of each head's loss, times that of the one before")
    distribution_share: float = Field(
        1.0, ge=0.0, le=1.0, description="1 = learn the target's distribution, 0 = learn the tokens that it chose"
    )
    tree_nodes: int = Field(64, ge=1, le=1024, description="Nodes of the tree that is stored with the heads")


class MedusaTrainingConfig(Settings):
    """Heads that learn from stored hidden states: the target is not run at all."""

    target: str = Field(min_length=1, description="Hub id, local folder or GGUF file")
    data: Path = Field(description="Folder that `outrider train data` wrote with this target")
    output: Path = Field(description="Folder of the heads")
    heads: HeadsSettings = HeadsSettings()
    optimizer: OptimizerConfig = OptimizerConfig()
