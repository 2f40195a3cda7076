"""A drafter as a fluid: sessions slow each other down; prompts are read one after the other."""

from collections.abc import Callable

from benchmarks.simulator.blocks import BlockCache
from benchmarks.simulator.settings import DrafterModel
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord

__all__ = ["SimulatedDrafter"]


class SimulatedDrafter:
    """`step_ms`: how often a verifier asks for a proposal."""

    def __init__(self, record: ReplicaRecord, model: DrafterModel, step_ms: float) -> None:
        self.record = record
        self.alive = True
        self.dirty = False  # something is to be told
        self.on_change: Callable[[], None] = lambda: None
        self.draining = False
        self.cache = BlockCache(model.num_blocks)
        self.sessions = 0
        self.busy_s = 0.0
        self._model = model
        self._idle_share = 1.0 - min(1.0, model.base_ms / step_ms)  # of time, with one session
        self._counted_s = 0.0
        self._reads_until_s = 0.0

    @property
    def response_ms(self) -> float:
        return self._model.base_ms + self._model.session_ms * max(0, self.sessions - 1)

    @property
    def busy(self) -> float:
        """Share of the time in which it computes for one session at least: sessions ask at any time, and are served
        together."""
        return 1.0 - self._idle_share**self.sessions

    def changed(self) -> None:
        """Gateways are to hear of it."""
        if not self.dirty:
            self.dirty = True
            self.on_change()

    def open(self, chain: list[int], now_s: float) -> float | None:
        """When drafts for it begin to come; None: it is full."""
        if not self.alive or self.sessions >= self._model.max_sessions:
            return None
        lease = self.cache.open(chain, 0)
        if lease is None:
            return None
        hits = len(lease.shared)
        self.cache.name(lease, chain[hits:])
        self.cache.close(lease)  # trees and sessions are small: what counts is which prompts are known
        self._count(now_s)
        self.sessions += 1
        missing = (len(chain) - hits) * self.record.kv_block_size
        self._reads_until_s = max(now_s, self._reads_until_s) + missing / self._model.prefill_tokens_per_s
        self.changed()
        return self._reads_until_s

    def close(self, now_s: float) -> None:
        self._count(now_s)
        self.sessions -= 1
        self.changed()

    def load(self, now_s: float) -> ReplicaLoad:
        rate = self._model.prefill_tokens_per_s
        return ReplicaLoad(
            running_requests=self.sessions,
            total_kv_blocks=self.cache.capacity,
            free_kv_blocks=self.cache.free,
            waiting_tokens=round(max(0.0, self._reads_until_s - now_s) * rate),
            prefill_tokens_per_s=rate,
            max_running_requests=self._model.max_sessions,
            response_ms=self.response_ms,
        )

    def busy_until(self, now_s: float) -> float:
        """Seconds of computing since the start."""
        self._count(now_s)
        return self.busy_s

    def _count(self, now_s: float) -> None:
        self.busy_s += (now_s - self._counted_s) * self.busy
        self._counted_s = now_s
