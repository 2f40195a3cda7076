"""Attention over a paged K/V cache, called by any transformers decoder.

`transformers` looks the function up by name (`attn_implementation`), calls it in every layer and hands through the
`forward_context` that the runner passed to the model. Because no mask function is registered under that name,
transformers builds no mask of its own.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from workers.attention.forward_context import ForwardContext

__all__ = ["ATTENTION_NAME", "paged_attention", "register"]

ATTENTION_NAME = "outrider_paged"


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, heads, tokens, head_dim]
    key: torch.Tensor,  # [1, kv_heads, tokens, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    forward_context: ForwardContext,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Write the new K/V to their slots, then attend chunk by chunk; returns [1, tokens, heads, head_dim].

    Query heads that share a K/V head are stacked as extra query rows, so that K/V is never repeated in memory.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]
    storage = forward_context.storage
    storage.write(layer, forward_context.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    heads, kv_heads, head_dim = query.shape[1], key.shape[1], query.shape[3]
    group = heads // kv_heads
    output = query.new_empty(1, query.shape[2], heads, head_dim)
    start = 0
    for chunk, key_slots, bias in zip(
        forward_context.chunks, forward_context.key_slots, forward_context.biases, strict=True
    ):
        n = chunk.num_tokens
        keys = storage.keys[layer].index_select(0, key_slots).transpose(0, 1)  # [kv_heads, c + w, head_dim]
        values = storage.values[layer].index_select(0, key_slots).transpose(0, 1)
        rows = query[0, :, start : start + n].reshape(1, kv_heads, group * n, head_dim)
        attended = scaled_dot_product_attention(rows, keys[None], values[None], attn_mask=bias, scale=scaling)
        output[0, start : start + n] = attended.view(heads, n, head_dim).transpose(0, 1)
        start += n
    return output, None


def register() -> None:
    """Make `attn_implementation=ATTENTION_NAME` known to transformers (idempotent)."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
