"""Names and shapes of the weights of Medusa heads, and what to say when a file does not have them."""

import re

import torch

from workers.core.errors import ConfigurationError
from workers.medusa.config import HeadsConfig

__all__ = ["Weights", "check_layout", "check_token_map", "plain_name"]

Weights = dict[str, torch.Tensor]
Shape = tuple[int, ...]


def plain_name(name: str) -> str:
    """Names of the first Medusa checkpoints as those of vLLM."""
    name = name.removeprefix("medusa_heads.").removeprefix("medusa_head.")
    if match := re.fullmatch(r"(\d+)\.(\d+)\.linear\.(weight|bias)", name):
        return f"blocks.{match[1]}.layers.{match[2]}.{match[3]}"
    if match := re.fullmatch(r"(\d+)\.\d+\.weight", name):
        return f"lm_heads.{match[1]}.weight"
    return name


def check_layout(where: str, config: HeadsConfig, hidden_size: int, num_rows: int | None, weights: Weights) -> None:
    """Raise `ConfigurationError` unless `weights` are those of heads with these sizes.

    A shared LM head may be missing (it is the target's own); `num_rows` of an LM head, None = any.
    """
    expected = _shapes(config, hidden_size, num_rows)
    missing = sorted(expected.keys() - weights.keys() - {"lm_head.weight"})
    strange = sorted(weights.keys() - expected.keys())
    if missing or strange:
        problem = f"{missing[0]} is missing" if missing else f"{strange[0]} does not belong there"
        raise ConfigurationError(
            f"{where}: the configuration says {config.num_heads} heads of {config.num_hidden_layers} residual layers, "
            f"the weights disagree: {problem}"
        )
    for name, tensor in weights.items():
        shape, found = expected[name], tuple(tensor.shape)
        if len(found) != len(shape) or any(size not in (-1, other) for size, other in zip(shape, found, strict=True)):
            wanted = ["any" if size == -1 else size for size in shape]
            raise ConfigurationError(f"{where}: {name} has shape {list(found)}, expected {wanted}")


def check_token_map(where: str, config: HeadsConfig, token_map: torch.Tensor | None) -> None:
    """A reduced vocabulary needs a map of just its size, of different tokens."""
    size = config.truncated_vocab_size
    if size is None:
        return
    if token_map is None:
        raise ConfigurationError(f"{where}: truncated_vocab_size is {size}, but the weights have no token_map")
    if token_map.is_floating_point() or tuple(token_map.shape) != (size,):
        raise ConfigurationError(f"{where}: token_map has shape {list(token_map.shape)}, expected integers [{size}]")
    if len(set(token_map.tolist())) != size or int(token_map.min()) < 0:
        raise ConfigurationError(f"{where}: token_map names a token twice, or a negative one")


def _shapes(config: HeadsConfig, hidden_size: int, num_rows: int | None) -> dict[str, Shape]:
    head = (num_rows or -1, hidden_size)
    shapes: dict[str, Shape] = {"lm_head.weight": head} if config.original_lm_head else {}
    for number in range(config.num_heads):
        for layer in range(config.num_hidden_layers):
            shapes[f"blocks.{number}.layers.{layer}.weight"] = (hidden_size, hidden_size)
            if config.medusa_fc_bias:
                shapes[f"blocks.{number}.layers.{layer}.bias"] = (hidden_size,)
        if not config.original_lm_head:
            shapes[f"lm_heads.{number}.weight"] = head
    return shapes
