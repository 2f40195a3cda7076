"""Whether a model can run here, as far as its settings tell; what they do not tell, `self_check` finds out."""

from typing import Any

import torch

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.core.shards import check_size, model_sizes
from workers.models.sharded import check_plan

__all__ = ["check_device", "check_supported", "context_length"]


def check_device(config: ModelConfig) -> None:
    """Raise `ConfigurationError` where the ranks of a group could not have a device each."""
    device = torch.device(config.device)
    if config.tensor_parallel_size == 1:
        return
    if device.index is not None:
        raise ConfigurationError(
            f"device {config.device!r} names one device for all of {config.tensor_parallel_size} ranks; "
            "with tensor_parallel_size above 1 use 'cuda' (each rank takes its own) or 'cpu'"
        )
    accelerator = torch.accelerator.current_accelerator()
    if device.type == "cpu" and accelerator is not None:  # transformers cuts models for what PyTorch was built for
        raise ConfigurationError(
            f"tensor_parallel_size above 1 on the CPU needs a PyTorch that was built without {accelerator.type}; "
            f"install that, or use device {accelerator.type!r}"
        )


def check_supported(config: ModelConfig, ref: str, hf_config: Any) -> None:
    """Raise `ConfigurationError` for a model that would be computed wrongly, or cannot be cut as `config` wants it.

    `hf_config`: of `ref`, the transformers model behind `config`.
    """
    sizes = model_sizes(
        hf_config.num_attention_heads,
        getattr(hf_config, "num_key_value_heads", None),
        getattr(hf_config, "intermediate_size", None),
    )
    check_size(config.tensor_parallel_size, sizes, config.model)
    if config.tensor_parallel_size > 1:
        check_plan(ref, hf_config)
    _check_attention(config, hf_config)


def _check_attention(config: ModelConfig, hf_config: Any) -> None:
    context = context_length(config, hf_config)
    window = getattr(hf_config, "sliding_window", None)
    if getattr(hf_config, "use_sliding_window", True) and window is not None and window < context:
        raise ConfigurationError(
            f"{config.model!r} attends over a sliding window of {window} tokens, which is not supported beyond it: "
            f"set max_context_length to at most {window}"
        )
    rope = getattr(hf_config, "rope_parameters", None) or {}
    first = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and first is not None and first < context:
        raise ConfigurationError(
            f"{config.model!r} turns all tokens by other angles once one is beyond position {first} (longrope), "
            f"which is not supported with cached keys: set max_context_length to at most {first}"
        )
    chunk = getattr(hf_config, "attention_chunk_size", None)
    if chunk is not None and chunk < context:
        raise ConfigurationError(
            f"{config.model!r} attends within chunks of {chunk} tokens, which is not supported beyond one: "
            f"set max_context_length to at most {chunk}"
        )
    if getattr(hf_config, "attn_logit_softcapping", None):
        raise ConfigurationError(f"{config.model!r} caps attention logits, which is not supported")


def context_length(config: ModelConfig, hf_config: Any) -> int:
    """Tokens that the model's context holds; `ConfigurationError` when more are wanted than it knows positions for."""
    own: int = hf_config.max_position_embeddings
    wanted = config.max_context_length or own
    if wanted > own:
        raise ConfigurationError(
            f"max_context_length {wanted} is above the {own} positions of {config.model!r}; at most {own}"
        )
    return wanted
