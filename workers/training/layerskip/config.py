"""Settings of `outrider train layerskip`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from workers.core.settings import Settings
from workers.training.data_folders import DataSources
from workers.training.optimizer_config import OptimizerConfig
from workers.training.run_settings import RunSettings

__all__ = ["Curriculum", "LayerSkipTrainingConfig", "LoraConfig", "Recipe"]

Curriculum = Literal["rotational", "gradual", "none"]


class Recipe(Settings):
    """Names and defaults of the paper's section 4.1; its table 2 has the values of their runs."""

    layer_dropout: float = Field(0.1, ge=0.0, lt=1.0, description="p_max: how often the last layer is skipped")
    dropout_grows: bool = Field(False, description="The rate grows over the run too, for training from scratch")
    early_exit_scale: float = Field(0.2, ge=0.0, le=1.0, description="e_scale: weight of the losses of earlier layers")
    curriculum: Curriculum = Field(
        "rotational", description="Which layers have a loss: every R-th in turn; more and more from the last; all"
    )
    rotation: int = Field(4, ge=1, le=128, description="R of the rotational curriculum")


class LoraConfig(Settings):
    """Low-rank updates of all linear layers, merged into the weights at the end."""

    rank: int = Field(16, ge=1, le=1024)
    alpha: int = Field(32, ge=1, le=1_000_000)


class LayerSkipTrainingConfig(RunSettings):
    """The result is a plain transformers folder."""

    model: str = Field(description="Hub id or folder of the model to train", min_length=1)
    data: DataSources
    output: Path = Field(description="Folder of the trained model; a run goes on where it was interrupted")
    sequence_length: int = Field(256, ge=8, le=1_000_000, description="Texts are put together and cut to this length")
    recipe: Recipe = Recipe()
    lora: LoraConfig | None = Field(None, description="None = all weights are trained")
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=5e-5)
