"""Allocates the K/V memory of an engine: the tensors, and the books over them."""

import weakref
from typing import Any

import psutil
import torch

from workers.core.block_hash import BlockHasher
from workers.core.config import KvCacheConfig
from workers.core.errors import ConfigurationError
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel
from workers.parallel.leader import GroupLeader

__all__ = ["LedKvStorage", "allocate_kv", "storage_for"]


def allocate_kv(loaded: LoadedModel, cache: KvCacheConfig) -> tuple[KvStorage, KvCacheManager]:
    """The whole pool at once; it never grows. `ConfigurationError` when it is larger than the machine's memory."""
    here = loaded.num_kv_heads if loaded.device.type == "cpu" else loaded.kv_heads_per_rank  # CPU ranks share memory
    needed = cache.num_tokens * KvStorage.bytes_per_slot(loaded.num_layers, here, loaded.head_dim, loaded.kv_dtype)
    available = _device_memory(loaded.device)
    if needed > available:
        raise ConfigurationError(
            f"kv_cache: {cache.num_blocks} blocks of {cache.block_size} tokens need {needed / 2**30:.1f} GiB, "
            f"{loaded.device} has {available / 2**30:.1f} GiB; lower num_blocks"
        )
    storage = storage_for(loaded, cache.num_tokens)
    manager = KvCacheManager(
        num_blocks=cache.num_blocks,
        block_size=cache.block_size,
        hasher=BlockHasher(loaded.fingerprint, cache.block_size),
        prefix_caching=cache.prefix_caching,
    )
    return storage, manager


def storage_for(loaded: LoadedModel, num_slots: int) -> KvStorage:
    """The tensors alone. With other ranks, each gets its part, and follows what is moved here."""
    sizes = {
        "num_layers": loaded.num_layers,
        "num_slots": num_slots,
        "num_kv_heads": loaded.kv_heads_per_rank,
        "head_dim": loaded.head_dim,
    }
    if loaded.leader is None:
        return KvStorage(**sizes, dtype=loaded.kv_dtype, device=loaded.device)
    return LedKvStorage(loaded.leader, **sizes, dtype=loaded.kv_dtype, device=loaded.device)


class LedKvStorage(KvStorage):
    """Rank 0's part of a pool. Block tables are the same on all ranks, so that slots are, too."""

    def __init__(self, leader: GroupLeader, *, num_slots: int, **sizes: Any) -> None:
        super().__init__(num_slots=num_slots, **sizes)
        self.number = leader.new_storage(num_slots)
        self._leader = leader
        weakref.finalize(self, leader.release_storage, self.number)

    def move(self, source_slots: torch.Tensor, target_slots: torch.Tensor) -> None:
        super().move(source_slots, target_slots)
        self._leader.note_move(self.number, source_slots.cpu().numpy(), target_slots.cpu().numpy())


def _device_memory(device: torch.device) -> int:
    """Bytes of memory in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)
