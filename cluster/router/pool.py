"""One pool of replicas as one gateway knows it: the books behind every choice.

What replicas report comes in by `update_members`, `report` and `apply`; `choose` asks the policy and notes the choice
at once, so that equal prompts that come in a burst go together, and yet do not pile up.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from cluster.config.routing import PoolRouting
from cluster.router.decision import Candidate, Choice, Decision, PoolName, RoutedRequest
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.policies.base import RoutingPolicy, cheapest_first, checked
from cluster.router.prefix_index import PrefixIndex
from cluster.router.replica_table import ReplicaKey, ReplicaTable, key_of, requests_of
from cluster.router.snapshot import Costs, Floats, Ints, PoolSnapshot, RequestShape
from workers.core.errors import InternalError

__all__ = ["RoutingPool"]

EXPLAINED_CANDIDATES = 8
Slots = npt.NDArray[np.intp]


class RoutingPool:
    """Belongs to one thread. `clock` in seconds, monotonic; `draw` gives random numbers in [0, 1)."""

    def __init__(
        self,
        name: PoolName,
        config: PoolRouting,
        policy: RoutingPolicy,
        *,
        max_sessions: int,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.name = name
        self.table = ReplicaTable()
        self.index = PrefixIndex()
        self._config = config
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[int, ReplicaKey] = OrderedDict()  # key of a session -> its home, latest last
        self._groups: dict[tuple[str, int], int] = {}  # of live replicas: (fingerprint, block size) -> number
        self._group_numbers = itertools.count()
        self._choices = 0

    # What replicas say

    def update_members(self, records: Iterable[ReplicaRecord]) -> None:
        """All live replicas: new ones get a row, all that is known of others is dropped."""
        live = {key_of(record): record for record in records}
        for key in self.table.keys:
            if key not in live:
                self.index.drop(self.table.drop(key))
        groups = {key: (record.model_fingerprint, record.kv_block_size) for key, record in live.items()}
        known = self._groups
        live_groups = dict.fromkeys(groups.values())
        self._groups = {one: known[one] if one in known else next(self._group_numbers) for one in live_groups}
        for key, record in live.items():
            if self.table.slot(key) is None:
                self.table.add(record, self._groups[groups[key]])

    def report(self, key: ReplicaKey, load: ReplicaLoad) -> None:
        """The load of a replica; ignored when it is gone."""
        slot = self.table.slot(key)
        if slot is not None:
            self.table.report(slot, load)

    def load(self, key: ReplicaKey) -> ReplicaLoad:
        """What the replica reported last; zeros when nothing is known of it."""
        slot = self.table.slot(key)
        return ReplicaLoad() if slot is None else self.table.load(slot)

    def apply(self, key: ReplicaKey, *, cleared: bool, stored: Iterable[int], removed: Iterable[int]) -> None:
        """Blocks that a replica gained and lost; ignored when it is gone."""
        slot = self.table.slot(key)
        if slot is None:
            return
        if cleared:
            self.index.clear(slot)
        self.index.remove(slot, removed)
        self.index.store(slot, stored)

    # Choices

    def choose(self, request: RoutedRequest, usable: Callable[[ReplicaRecord], bool], count: int = 1) -> Choice | None:
        """The best `count` replicas of those that are `usable`; None when there is none.

        A policy may exclude all drafters, which is None as well. `InternalError` when it excludes all verifiers, or
        returns what no policy may.

        The first of them is noted as taking the request: `release` it when it has ended there.
        """
        started = self._clock()
        slots = self.table.those(usable)
        if not len(slots):
            return None
        self.index.expire(started)
        pool = self._snapshot(request, slots)
        costs, total = self._costs(request, pool)
        order = cheapest_first(total, pool.last_chosen)
        if not len(order):
            if self.name == "drafter":
                return None  # answers need none
            raise InternalError(f"routing policy {self._config.policy} excludes all {len(slots)} {self.name}s")
        chosen = order[:count]
        candidates = self._candidates(slots, order[:EXPLAINED_CANDIDATES], pool, costs, total)
        self._note(request, int(slots[chosen[0]]), int(pool.cached_tokens[chosen[0]]), started)  # nothing fails now
        decision = Decision(
            request.index,
            self.name,
            self._config.policy,
            prompt_tokens=len(request.token_ids),
            num_replicas=len(slots),
            num_chosen=len(chosen),
            candidates=candidates,
            decision_ms=(self._clock() - started) * 1e3,
        )
        return Choice(tuple(self.table.record(slot) for slot in slots[chosen]), decision)

    def release(self, record: ReplicaRecord) -> None:
        """The request that was chosen for has ended at the replica."""
        slot = self.table.slot(key_of(record))
        if slot is not None:
            self.table.release(slot)

    def _costs(self, request: RoutedRequest, pool: PoolSnapshot) -> tuple[Costs, Floats]:
        draws = self._draw(), self._draw()
        shape = RequestShape(len(request.token_ids), request.output_tokens, request.key, draws)
        return checked(self._policy.costs(shape, pool), len(pool), self._config.policy)

    def _candidates(
        self, slots: Slots, order: npt.NDArray[np.int64], pool: PoolSnapshot, costs: Costs, total: Floats
    ) -> tuple[Candidate, ...]:
        terms = zip(*(term[order].tolist() for term in costs.values()), strict=True)
        found = zip(
            slots[order].tolist(), pool.cached_tokens[order].tolist(), total[order].tolist(), terms, strict=True
        )
        return tuple(
            Candidate(self.table.record(slot).replica_id, cached, cost, dict(zip(costs, values, strict=True)))
            for slot, cached, cost, values in found
        )

    def _snapshot(self, request: RoutedRequest, slots: Slots) -> PoolSnapshot:
        rows = self.table.rows(slots)
        home = self._sessions.get(request.key) if request.session_id else None
        return PoolSnapshot(
            identity=rows["identity"],
            cached_tokens=self._cached_tokens(request, slots, rows["group"]),
            requests=requests_of(rows),
            seats=np.maximum(rows["max_running_requests"], 1),
            waiting_tokens=rows["waiting_tokens"] + rows["unreported_tokens"],
            prefill_tokens_per_s=rows["prefill_tokens_per_s"],
            response_ms=rows["response_ms"],
            block_size=rows["block_size"],
            free_blocks=rows["free_kv_blocks"],
            total_blocks=rows["total_kv_blocks"],
            last_chosen=rows["last_chosen"],
            session_home=slots == (self.table.slot(home) if home is not None else None),
        )

    def _cached_tokens(self, request: RoutedRequest, slots: Slots, groups: Ints) -> Ints:
        """[slots]: tokens of the prompt in blocks that the replica is believed to hold; `groups`: the replica's."""
        cached = np.zeros(len(slots), dtype=np.int64)
        for (fingerprint, block_size), number in self._groups.items():
            if len(self._groups) > 1 and not (groups == number).any():
                continue
            matched = self.index.match(request.block_hashes(fingerprint, block_size))
            if matched:
                blocks = np.zeros(self.table.num_slots, dtype=np.int64)
                blocks[list(matched)] = list(matched.values())
                cached = np.where(groups == number, blocks[slots] * block_size, cached)
        return cached

    def _note(self, request: RoutedRequest, slot: int, cached_tokens: int, now: float) -> None:
        record = self.table.record(slot)
        blocks = request.block_hashes(record.model_fingerprint, record.kv_block_size)
        self.index.expect(slot, blocks, now + self._config.expected_blocks_ttl_s)
        if request.session_id and self._max_sessions:
            self._sessions[request.key] = key_of(record)
            self._sessions.move_to_end(request.key)
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        self._choices += 1
        self.table.occupy(slot, max(1, len(request.token_ids) - cached_tokens), self._choices)
