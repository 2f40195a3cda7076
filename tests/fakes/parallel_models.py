"""A tiny pair that 2 and 3 ranks can share, and a model whose later layers say little."""

from pathlib import Path

from safetensors.torch import load_file, save_file

from workers.core.config import ModelConfig
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.models.tiny import build_tiny_model

__all__ = ["build_shared_model", "load_shared"]


def build_shared_model(folder: Path) -> Path:
    """12 heads, 6 K/V heads, 4 layers; early exits behind layer 2 are often right, so that layerskip drafts well."""
    build_tiny_model(folder, hidden_size=96, num_layers=4, num_heads=12, num_kv_heads=6)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.startswith(("model.layers.2.", "model.layers.3.")) and ("o_proj" in name or "down_proj" in name):
            weight.mul_(0.15)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def load_shared(folder: Path | str, ranks: int, **settings: object) -> LoadedModel:
    """Child processes are the other ranks; the caller closes the model, before it opens another with ranks."""
    return load_model(
        ModelConfig.model_validate(
            {
                "model": str(folder),
                "dtype": "float32",
                "num_threads": 1,
                "tensor_parallel_size": ranks,
                "rank_timeout_s": 120.0,
                **settings,
            }
        )
    )
