"""Which tensor-parallel sizes a model allows."""

import json
from collections.abc import Mapping
from pathlib import Path

from workers.core.errors import ConfigurationError

__all__ = ["allowed_sizes", "check_size", "model_sizes", "sizes_in_folder"]

Sizes = Mapping[str, int]
"""What must be cut into equal parts, by name."""


def model_sizes(heads: int, kv_heads: int | None, intermediate_size: int | None) -> Sizes:
    """None: as many K/V heads as heads; an intermediate size that nobody knows."""
    sizes = {"attention heads": heads, "KV heads": kv_heads or heads}
    return sizes if intermediate_size is None else {**sizes, "intermediate size": intermediate_size}


def allowed_sizes(sizes: Sizes) -> list[int]:
    """Numbers of ranks that divide everything."""
    return [n for n in range(1, sizes["KV heads"] + 1) if all(number % n == 0 for number in sizes.values())]


def check_size(size: int, sizes: Sizes, model: str) -> None:
    """Raise `ConfigurationError` unless every rank gets the same number of heads, K/V heads and MLP columns."""
    for what, number in sizes.items():
        if number % size:
            raise ConfigurationError(
                f"tensor_parallel_size {size} does not divide the {number} {what} of {model!r}; "
                f"allowed: {allowed_sizes(sizes)}"
            )


def sizes_in_folder(folder: Path) -> Sizes | None:
    """Of a transformers model in a local folder, from its config.json alone; None where that does not tell."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads")
        return model_sizes(int(heads), kv_heads and int(kv_heads), config.get("intermediate_size"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
