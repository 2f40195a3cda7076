"""Decoders of the Llama kind with as few operators as they need.

A step of a small model spends about as much time between its matrix products as in them: every operator of PyTorch
costs a CPU some microseconds before it computes anything. transformers writes a layer for reading, in nearly forty of
them (views not counted). Here it is the same arithmetic in twenty:

- one product for q, k, v and one for gate and up, whose inputs are the same
- q and k turned together: x * cos + roll(x) * sin with a sign in sin, which is rotate_half
- K and V stay side by side as the product wrote them, which is how the cache stores them
- the norm in one operator

`workers.models.self_check` compares every lean model with the original when it is loaded.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import rms_norm
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from workers.attention.forward_context import ForwardContext
from workers.attention.paged import attend

__all__ = ["make_lean"]

# Decoders whose layers are: norm, attention, norm, gated MLP, with two additions. Qwen3 has norms for q and k as well.
SUPPORTED = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer"}

Rotation = tuple[torch.Tensor, torch.Tensor]  # cos and signed sin, [tokens, 1, head_dim]


def make_lean(model: PreTrainedModel) -> bool:
    """Replace the decoder of `model` in place; False, and nothing changed, for one of another kind."""
    decoder: Any = model.base_model
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or {type(layer).__name__ for layer in layers} - SUPPORTED:
        return False
    if not all(map(_has_plain_weights, layers)) or not _turns_whole_heads(decoder.rotary_emb, layers[0]):
        return False
    for index, layer in enumerate(layers):
        layers[index] = _LeanLayer(layer)  # one by one: the weights are there twice for a single layer only
    setattr(model, model.base_model_prefix, _LeanDecoder(decoder))
    return True


class _LeanDecoder(nn.Module):
    """All between tokens and the LM head. Starts from `inputs_embeds` [1, tokens, hidden_size] where they are given."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.embed_tokens = decoder.embed_tokens
        self.layers = decoder.layers
        self.norm = _Norm(decoder.norm)
        self.rotary_emb = decoder.rotary_emb

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        *,
        position_ids: torch.Tensor,
        forward_context: ForwardContext,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> BaseModelOutputWithPast:
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        cos, sin = self.rotary_emb(x, position_ids)  # [1, tokens, head_dim]
        sin[..., : sin.shape[-1] // 2].neg_()
        rotation = cos[0, :, None], sin[0, :, None]
        for layer in self.layers:
            x = layer(x, rotation, forward_context)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x))


class _Norm(nn.Module):
    """RMSNorm. [..., size] to the same."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight: nn.Parameter = norm.weight  # type: ignore[assignment]
        self.eps: float = norm.variance_epsilon  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight.shape, self.weight, self.eps)


class _LeanLayer(nn.Module):
    """One decoder layer over a paged cache. [1, tokens, hidden_size] to the same."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        self.index: int = attention.layer_idx
        self.head_dim: int = attention.head_dim
        self.scaling: float = attention.scaling
        self.num_heads: int = attention.q_proj.out_features // self.head_dim
        self.num_kv_heads: int = attention.k_proj.out_features // self.head_dim
        self.qkv_proj = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.o_proj = attention.o_proj
        self.gate_up_proj = _joined(mlp.gate_proj, mlp.up_proj)
        self.down_proj = mlp.down_proj
        self.act_fn = mlp.act_fn
        self.attention_norm = _Norm(layer.input_layernorm)  # type: ignore[arg-type]
        self.mlp_norm = _Norm(layer.post_attention_layernorm)  # type: ignore[arg-type]
        self.q_norm = _Norm(attention.q_norm) if hasattr(attention, "q_norm") else None
        self.k_norm = _Norm(attention.k_norm) if hasattr(attention, "k_norm") else None

    def forward(self, hidden_states: torch.Tensor, rotation: Rotation, context: ForwardContext) -> torch.Tensor:
        residual = hidden_states[0]
        x = self._attention(self.attention_norm(residual), rotation, context).add_(residual)
        gate, up = self.gate_up_proj(self.mlp_norm(x)).chunk(2, dim=-1)
        y: torch.Tensor = self.down_proj(self.act_fn(gate).mul_(up)).add_(x)
        return y[None]

    def _attention(self, x: torch.Tensor, rotation: Rotation, context: ForwardContext) -> torch.Tensor:
        """[tokens, hidden_size] to the same."""
        tokens, heads, kv_heads = len(x), self.num_heads, self.num_kv_heads
        qkv = self.qkv_proj(x).view(tokens, heads + 2 * kv_heads, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            qkv[:, :heads] = self.q_norm(qkv[:, :heads])
            qkv[:, heads : heads + kv_heads] = self.k_norm(qkv[:, heads : heads + kv_heads])
        cos, sin = rotation
        turned = qkv[:, : heads + kv_heads]  # q and k
        torch.addcmul(turned * cos, turned.roll(self.head_dim // 2, -1), sin, out=turned)
        keys_values = qkv[:, heads:].view(tokens, 2, kv_heads, self.head_dim)
        context.storage.write(self.index, context.slots, keys_values)
        attended = attend(qkv[:, :heads].transpose(0, 1), self.index, context, self.scaling)
        y: torch.Tensor = self.o_proj(attended.reshape(tokens, -1))
        return y


def _joined(*layers: nn.Linear) -> nn.Linear:
    """One layer with the outputs of all, one behind the other."""
    bias = layers[0].bias is not None
    sizes = [layer.out_features for layer in layers]
    whole = nn.Linear(layers[0].in_features, sum(sizes), bias=bias, device="meta")
    whole.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]), requires_grad=False)
    if bias:
        whole.bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]), requires_grad=False)
    return whole


def _has_plain_weights(layer: Any) -> bool:
    """Whether nothing is quantised or adapted."""
    attention, mlp = layer.self_attn, layer.mlp
    linears = (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)
    return all(type(linear) is nn.Linear for linear in linears)


def _turns_whole_heads(rotary: nn.Module, layer: Any) -> bool:
    """Whether the angles cover the whole of a head (some models turn a part of it only)."""
    x = torch.zeros(1, 1, 1, device=layer.self_attn.q_proj.weight.device)
    cos, _ = rotary(x, torch.zeros(1, 1, dtype=torch.int64, device=x.device))
    return bool(cos.shape[-1] == layer.self_attn.head_dim)
