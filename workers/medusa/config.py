"""config.json of Medusa heads: vLLM's names and meanings, and what is ours beside them under the key `outrider`."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workers.core.errors import ConfigurationError
from workers.core.shown import shown
from workers.medusa.tree import Choice, check_tree

__all__ = ["HeadsConfig", "Origin"]

FILE = "config.json"
MAX_SIZE = 2**31 - 1


class _Read(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False
    )  # other programs write keys of their own


class Origin(_Read):
    """What no other program knows of: where heads come from and how good they are. All of it may be missing."""

    target: str = Field("", description="The model that they were trained for")
    target_fingerprint: str = ""
    head_accuracies: tuple[tuple[float, ...], ...] = Field(
        (), description="For each head and rank: how often the token of that rank was the right one"
    )
    tree_choices: tuple[Choice, ...] = Field((), description="Nodes of the tree as paths of ranks, best first")

    @field_validator("tree_choices")
    @classmethod
    def _is_tree(cls, choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
        check_tree(choices)
        return choices


class HeadsConfig(_Read):
    """Sizes of the heads. None = the checkpoint does not say; its weights do."""

    num_heads: int = Field(ge=1, le=64)
    num_hidden_layers: int = Field(1, ge=1, le=64, description="Residual blocks of each head")
    hidden_size: int | None = Field(None, ge=1, le=MAX_SIZE)
    vocab_size: int | None = Field(None, ge=1, le=MAX_SIZE)
    truncated_vocab_size: int | None = Field(
        None, ge=1, le=MAX_SIZE, description="Tokens that heads can propose; None = all"
    )
    original_lm_head: bool = Field(False, description="All heads share the target's LM head")
    medusa_fc_bias: bool = False
    logit_scale: float = Field(1.0, ge=-1e6, le=1e6)
    outrider: Origin = Origin()

    @staticmethod
    def read(folder: Path) -> "HeadsConfig":
        """Raises `ConfigurationError` that says what is wrong with the file."""
        path = folder / FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"Medusa heads {str(folder)!r}: {FILE} cannot be read ({error})") from None
        kind = values.get("model_type", "medusa") if isinstance(values, dict) else None
        if kind != "medusa":
            raise ConfigurationError(
                f"{str(folder)!r} holds no Medusa heads: its model_type is {shown(kind)}, not 'medusa'"
            )
        try:
            return HeadsConfig.model_validate(_with_plain_names(values))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            name = ".".join(map(str, problem["loc"]))
            raise ConfigurationError(f"Medusa heads {str(folder)!r}, {FILE}: {name}: {problem['msg']}") from None

    def write(self, folder: Path) -> None:
        """As vLLM reads it. (It takes any top-level key with `num` and `heads` or `layers` in it for its own.)"""
        values: dict[str, Any] = {"model_type": "medusa", "architectures": ["MedusaModel"], **self.model_dump()}
        if self.truncated_vocab_size is None:
            values["truncated_vocab_size"] = self.vocab_size
        (folder / FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _with_plain_names(values: dict[str, Any]) -> dict[str, Any]:
    """`medusa_num_heads`, `medusa_num_layers` and the like are num_heads and num_hidden_layers, as in vLLM."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if "num" in name and "heads" in name:
            name = "num_heads"
        elif "num" in name and "layers" in name:
            name = "num_hidden_layers"
        plain[name] = value
    if plain.get("truncated_vocab_size") == plain.get("vocab_size"):
        plain.pop("truncated_vocab_size", None)
    return plain
