"""Settings of `outrider train medusa` and `outrider train medusa2`."""

from pathlib import Path

from pydantic import Field

from workers.core.config import MAX_TOKENS
from workers.core.settings import Settings
from workers.training.data_folders import DataFolders
from workers.training.optimizer_config import MAX_STEPS, OptimizerConfig
from workers.training.run_settings import RunSettings

__all__ = ["HeadsSettings", "Medusa2TrainingConfig", "MedusaTrainingConfig"]


class HeadsSettings(Settings):
    """What the heads look like, and what they learn."""

    num_heads: int = Field(4, ge=1, le=16, description="Tokens that are guessed ahead")
    num_layers: int = Field(1, ge=1, le=8, description="Residual blocks of each head")
    shared_head: bool = Field(True, description="All heads use the target's LM head, which stays as it is")
    vocabulary_size: int | None = Field(
        8192, ge=16, le=MAX_TOKENS, description="Most frequent answer tokens that heads can propose; None = all"
    )
    decay: float = Field(0.8, gt=0.0, le=1.0, description="Weight of each head's loss, times that of the one before")
    distribution_share: float = Field(
        1.0, ge=0.0, le=1.0, description="1 = learn the target's distribution, 0 = learn the tokens that it chose"
    )
    tree_nodes: int = Field(64, ge=1, le=1024, description="Nodes of the tree that is stored with the heads")


class MedusaTrainingConfig(RunSettings):
    """Heads that learn from stored hidden states: the target is not run at all."""

    target: str = Field(min_length=1, description="Hub id, local folder or GGUF file")
    data: DataFolders
    output: Path = Field(description="Folder of the heads")
    heads: HeadsSettings = HeadsSettings()
    optimizer: OptimizerConfig = OptimizerConfig()


class Medusa2TrainingConfig(RunSettings):
    """Heads and target learn together; the target is kept near what it was."""

    target: str = Field(min_length=1, description="Hub id, local folder or GGUF file")
    data: DataFolders
    output: Path = Field(description="Folder that receives `model` (a transformers folder) and `heads`")
    heads: HeadsSettings = HeadsSettings()
    lora_rank: int | None = Field(16, ge=1, le=1024, description="None = all weights of all layers are trained")
    backbone_learning_rate: float = Field(1e-4, gt=0.0, le=1.0, description="That of the heads is the optimizer's")
    heads_first_steps: int = Field(
        100, ge=0, le=MAX_STEPS, description="Steps at the start in which the target stays as it is"
    )
    heads_weight: float = Field(0.2, gt=0.0, le=10.0, description="Of the heads' loss beside the target's own")
    self_distillation: float = Field(
        1.0, ge=0.0, le=1.0, description="1 = the target learns to stay what it was, 0 = the tokens that it wrote"
    )
    max_length: int = Field(512, ge=16, le=100_000, description="Longer answers are cut, in tokens with their prompt")
    optimizer: OptimizerConfig = OptimizerConfig()
