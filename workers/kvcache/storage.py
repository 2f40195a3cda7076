"""The K/V tensors: one slot per token, `block_size` slots per block."""

import torch

__all__ = ["KvStorage"]


class KvStorage:
    """K and V of all layers, allocated once; `data` is [layers, 2, slots, kv_heads, head_dim]."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.data = torch.zeros(num_layers, 2, num_slots, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.keys = [self.data[layer, 0] for layer in range(num_layers)]  # each [slots, kv_heads, head_dim]
        self.values = [self.data[layer, 1] for layer in range(num_layers)]

    @staticmethod
    def bytes_per_slot(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        return num_layers * 2 * num_kv_heads * head_dim * dtype.itemsize

    @property
    def num_slots(self) -> int:
        return self.data.shape[2]

    @property
    def num_bytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store new K/V; `slots` [n], `keys` and `values` [n, kv_heads, head_dim]."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    def move(self, source_slots: torch.Tensor, target_slots: torch.Tensor) -> None:
        """Copy slots to other slots in all layers (sources are read before targets are written)."""
        self.data.index_copy_(2, target_slots, self.data.index_select(2, source_slots))
