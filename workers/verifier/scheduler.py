"""Chooses what one step computes: continuous batching under a token budget and a block pool.

Order: decoding requests first (with their trees), then prefills, urgent ones before others, then new requests in the
order of the waiting room. When blocks run out, a request first loses its tree, then the running one of the last rank
(lowest priority, then the tenant that was served most, then the youngest) loses its K/V and is computed again later
(preemption by recompute). Nothing that was committed is ever lost.
"""

from collections.abc import Mapping

from workers.core.proposal import Proposal
from workers.kvcache.manager import KvCacheManager
from workers.verifier.request_state import RequestState, ScheduledRequest
from workers.verifier.waiting_room import WaitingRoom

__all__ = ["Scheduler"]


class Scheduler:
    """Owns the running requests and their block tables. Called by the engine's thread only, except `waiting.offer`."""

    def __init__(self, kv_cache: KvCacheManager, *, max_running: int, max_tokens_per_step: int) -> None:
        self._kv_cache = kv_cache
        self.max_running = max_running
        self._max_tokens = max_tokens_per_step
        self.waiting = WaitingRoom()
        self.running: list[RequestState] = []
        self.num_preemptions = 0

    def admit(self) -> list[RequestState]:
        """Move waiting requests to running while there is room; returns those admitted now (in order).

        Nobody is admitted whose prompt would not get into this step anyway: a prompt that waits finds more in the
        prefix cache, above all where equal ones come together and the first of them is being computed.
        """
        admitted: list[RequestState] = []
        room = self._max_tokens - sum(state.num_uncomputed for state in self.running)
        while room > 0 and len(self.running) < self.max_running and (state := self.waiting.head()) is not None:
            table = self._kv_cache.open(state.tokens, state.request.cache_salt)
            missing = len(state.tokens) - table.capacity
            if missing > self._kv_cache.num_free_blocks * self._kv_cache.block_size:
                self._kv_cache.close(table)
                break
            # Computing a preempted request again is the server's business: a tenant pays for each token once.
            uncached = len(state.tokens) - table.num_cached_tokens if state.stats.preemptions == 0 else 0
            if not self.waiting.take(state, uncached):  # displaced by a new request this very moment
                self._kv_cache.close(table)
                continue
            state.table = table
            state.num_computed = table.num_cached_tokens
            self.running.append(state)
            admitted.append(state)
            room -= state.num_uncomputed
        return admitted

    def schedule(self, proposals: Mapping[int, Proposal]) -> list[ScheduledRequest]:
        """The step's work; every scheduled request has the blocks it needs."""
        scheduled: list[ScheduledRequest] = []
        left = self._max_tokens
        for state in sorted(self.running, key=lambda s: (s.num_uncomputed > 1, s.request.priority)):  # stable
            if state not in self.running or left == 0:
                continue  # preempted by another request of this very step, or no budget
            num_tokens = min(state.num_uncomputed, left)
            reaches_root = num_tokens == state.num_uncomputed
            proposal = proposals.get(state.key) if reaches_root else None
            if proposal is not None and len(proposal.tree) > left - num_tokens:
                proposal = None
            item = self._with_blocks(ScheduledRequest(state, num_tokens, proposal), scheduled)
            if item is not None:
                scheduled.append(item)
                left -= item.num_tokens + item.num_nodes
        return scheduled

    def _with_blocks(self, item: ScheduledRequest, scheduled: list[ScheduledRequest]) -> ScheduledRequest | None:
        state = item.state
        end = state.num_computed + item.num_tokens
        if item.num_nodes and self._kv_cache.reserve(state.blocks, end + item.num_nodes):
            return item
        while not self._kv_cache.reserve(state.blocks, end):
            victim = max(self.running, key=self.waiting.rank)
            self.preempt(victim)
            scheduled[:] = [other for other in scheduled if other.state is not victim]
            if victim is state:
                return None
        return ScheduledRequest(state, item.num_tokens)

    def preempt(self, state: RequestState) -> None:
        """Give back its blocks; it waits at its place of old and keeps every committed token."""
        self.running.remove(state)
        self._release(state)
        state.stats.preemptions += 1
        self.num_preemptions += 1
        self.waiting.put_back(state)

    def remove(self, state: RequestState) -> None:
        """Forget a finished, cancelled or failed request and give back its blocks."""
        if state in self.running:
            self.running.remove(state)
            self.waiting.ran(state)
        else:
            self.waiting.remove(state)
        self._release(state)

    def _release(self, state: RequestState) -> None:
        if state.table is not None:
            self._kv_cache.close(state.table)
            state.table = None
        state.num_computed = 0
