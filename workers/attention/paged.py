"""Attention over a paged K/V cache, called by any transformers decoder.

`transformers` looks the function up by name (`attn_implementation`), calls it in every layer and hands through the
`forward_context` that the runner passed to the model. Because no mask function is registered under that name,
transformers builds no mask of its own.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from workers.attention.forward_context import AttentionGroup, ForwardContext

__all__ = ["ATTENTION_NAME", "attend", "paged_attention", "register"]

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
    """Write the new K/V to their slots and attend; returns [1, tokens, heads, head_dim]."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    keys_values = torch.stack((key[0].transpose(0, 1), value[0].transpose(0, 1)), dim=1)
    forward_context.storage.write(layer, forward_context.slots, keys_values)
    return attend(query[0], layer, forward_context, scaling)[None], None


def attend(query: torch.Tensor, layer: int, context: ForwardContext, scaling: float) -> torch.Tensor:
    """Attention of new tokens over the cache, group by group; [heads, tokens, head_dim] to [tokens, heads, head_dim].

    Their own K/V is in the cache already.
    """
    storage, groups = context.storage, context.groups
    if len(groups) == 1 and groups[0].rows is None:
        return _attend(query, storage.read(layer, groups[0].key_slots), groups[0], scaling)
    output = query.new_empty(query.shape[1], query.shape[0], query.shape[2])
    for group in groups:
        attended = _attend(query[:, group.rows], storage.read(layer, group.key_slots), group, scaling)
        output[group.rows] = attended
    return output


def _attend(query: torch.Tensor, keys_values: torch.Tensor, group: AttentionGroup, scaling: float) -> torch.Tensor:
    """`query` [heads, b * n, head_dim], `keys_values` [b * k, 2, kv_heads, head_dim]; [b * n, heads, head_dim].

    Query heads that share a K/V head are stacked as extra query rows, so that K/V is never repeated in memory.
    """
    heads, _, head_dim = query.shape
    b, n, kv_heads = group.size, group.num_tokens, keys_values.shape[2]
    keys, values = keys_values.view(b, -1, 2, kv_heads, head_dim).permute(2, 0, 3, 1, 4).unbind()
    rows = query.reshape(heads, b, n, head_dim) if b > 1 else query[:, None]
    rows = rows.transpose(0, 1).reshape(b, kv_heads, heads // kv_heads * n, head_dim)
    attended = scaled_dot_product_attention(rows, keys, values, attn_mask=group.bias, scale=scaling)
    return attended.view(b, heads, n, head_dim).transpose(1, 2).reshape(b * n, heads, head_dim)


def register() -> None:
    """Make `attn_implementation=ATTENTION_NAME` known to transformers (idempotent)."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
