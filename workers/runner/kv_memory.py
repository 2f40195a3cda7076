"""Allocates the K/V memory of an engine: the tensors, and the books over them."""

import psutil
import torch

from workers.core.block_hash import BlockHasher
from workers.core.config import KvCacheConfig
from workers.core.errors import ConfigurationError
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel

__all__ = ["allocate_kv", "storage_for"]


def allocate_kv(loaded: LoadedModel, cache: KvCacheConfig) -> tuple[KvStorage, KvCacheManager]:
    """The whole pool at once; it never grows. `ConfigurationError` when it is larger than the machine's memory."""
    needed = cache.num_tokens * KvStorage.bytes_per_slot(
        loaded.num_layers, loaded.num_kv_heads, loaded.head_dim, loaded.kv_dtype
    )
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
    """The tensors alone."""
    return KvStorage(
        num_layers=loaded.num_layers,
        num_slots=num_slots,
        num_kv_heads=loaded.num_kv_heads,
        head_dim=loaded.head_dim,
        dtype=loaded.kv_dtype,
        device=loaded.device,
    )


def _device_memory(device: torch.device) -> int:
    """Bytes of memory in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)
