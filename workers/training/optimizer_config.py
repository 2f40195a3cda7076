"""Settings that all training methods share."""

from typing import Literal

from pydantic import Field

from workers.core.settings import Settings

__all__ = ["MAX_STEPS", "OptimizerConfig"]

MAX_STEPS = 10**9


class OptimizerConfig(Settings):
    """How long and how fast to train. One step is one batch."""

    epochs: float = Field(1.0, gt=0.0, le=1000.0, description="Passes over the training answers")
    max_steps: int | None = Field(None, ge=1, le=MAX_STEPS, description="Ends earlier than the epochs say")
    batch_size: int = Field(8, ge=1, le=4096, description="Answers per step")
    learning_rate: float = Field(1e-3, gt=0.0, le=1.0, description="At its highest; it decays along a cosine")
    warmup_steps: int = Field(50, ge=0, le=MAX_STEPS)
    weight_decay: float = Field(0.01, ge=0.0, le=1.0)
    max_grad_norm: float = Field(1.0, gt=0.0, le=1e6)
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16 = mixed precision")
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = Field(0, ge=0, lt=2**32)
    validation_answers: int = Field(
        100, ge=1, le=1_000_000, description="Kept out of training, to measure agreement on"
    )
    evaluate_every: int = Field(200, ge=1, le=MAX_STEPS, description="Steps")
    save_every: int = Field(200, ge=1, le=MAX_STEPS, description="Steps between checkpoints that a run can go on from")
