"""What the settings of all training methods have in common."""

from pathlib import Path

from workers.core.settings import Settings
from workers.training.optimizer_config import OptimizerConfig

__all__ = ["RunSettings"]


class RunSettings(Settings):
    """What is learnt from, where the result goes, how long and how fast."""

    data: tuple[Path, ...]
    output: Path
    optimizer: OptimizerConfig = OptimizerConfig()
