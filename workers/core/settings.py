"""The base of every settings model: frozen, and unknown keys are refused."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Settings"]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
