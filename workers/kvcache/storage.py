"""The K/V tensors: one slot per token, `block_size` slots per block."""

import torch

__all__ = ["KvStorage"]


class KvStorage:
    """K and V of all layers, allocated once; `data` is [layers, slots, 2, kv_heads, head_dim].

    K and V of a token lie side by side, so that one gather reads both.
    """

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
        self.data = torch.zeros(num_layers, num_slots, 2, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.layers = list(self.data.unbind())  # each [slots, 2, kv_heads, head_dim]
        self._gathered = self.data.new_empty(0, 2, num_kv_heads, head_dim)

    @staticmethod
    def bytes_per_slot(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        return num_layers * 2 * num_kv_heads * head_dim * dtype.itemsize

    @property
    def num_slots(self) -> int:
        return self.data.shape[1]

    @property
    def num_bytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def write(self, layer: int, slots: torch.Tensor, keys_values: torch.Tensor) -> None:
        """Store new K/V; `slots` [n], `keys_values` [n, 2, kv_heads, head_dim]."""
        self.layers[layer].index_copy_(0, slots, keys_values)

    def read(self, layer: int, slots: torch.Tensor) -> torch.Tensor:
        """K and V at `slots` [n]: [n, 2, kv_heads, head_dim]; valid until the next `read`.

        All reads gather into one buffer: fresh memory of this size costs the CPU about as much as the copy.
        """
        if len(self._gathered) < len(slots):
            self._gathered = self.data.new_empty(len(slots), *self.data.shape[2:])
        return torch.index_select(self.layers[layer], 0, slots, out=self._gathered[: len(slots)])

    def move(self, source_slots: torch.Tensor, target_slots: torch.Tensor) -> None:
        """Copy slots to other slots in all layers (sources are read before targets are written)."""
        self.data.index_copy_(1, target_slots, self.data.index_select(1, source_slots))
