"""Allocates the K/V memory of an engine: the tensors, and the books over them."""

from workers.core.block_hash import BlockHasher
from workers.core.config import KvCacheConfig
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel

__all__ = ["allocate_kv"]


def allocate_kv(loaded: LoadedModel, cache: KvCacheConfig) -> tuple[KvStorage, KvCacheManager]:
    """The whole pool at once; it never grows."""
    storage = KvStorage(
        num_layers=loaded.num_layers,
        num_slots=cache.num_tokens,
        num_kv_heads=loaded.num_kv_heads,
        head_dim=loaded.head_dim,
        dtype=loaded.kv_dtype,
        device=loaded.device,
    )
    manager = KvCacheManager(
        num_blocks=cache.num_blocks,
        block_size=cache.block_size,
        hasher=BlockHasher(loaded.fingerprint, cache.block_size),
        prefix_caching=cache.prefix_caching,
    )
    return storage, manager
