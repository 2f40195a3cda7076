"""Which verifier runs an answer, and which drafters it should ask. Pure functions of a snapshot."""

import random
from collections.abc import Mapping, Sequence

from cluster.gateway.directory import ReplicaState
from workers.core.request import DrafterEndpoint

__all__ = ["choose_verifier", "rank_drafters"]


def choose_verifier(
    candidates: Sequence[ReplicaState], in_flight: Mapping[str, int], rng: random.Random
) -> ReplicaState | None:
    """The least loaded; equals are drawn, so that many gateways do not all choose the same."""
    return min(candidates, key=lambda one: (_load(one, in_flight), rng.random()), default=None)


def rank_drafters(
    candidates: Sequence[ReplicaState],
    in_flight: Mapping[str, int],
    rng: random.Random,
    *,
    tokenizer_hash: str,
    count: int,
) -> tuple[DrafterEndpoint, ...]:
    """The least loaded `count` of those with the target's tokenizer, best first."""
    fitting = [one for one in candidates if one.record.tokenizer_hash == tokenizer_hash]
    ranked = sorted(fitting, key=lambda one: (_load(one, in_flight), rng.random()))
    return tuple(
        DrafterEndpoint(one.record.replica_id, one.record.address, one.record.incarnation) for one in ranked[:count]
    )


def _load(state: ReplicaState, in_flight: Mapping[str, int]) -> int:
    """Requests at the replica. Reports lag behind and contain our own requests, so the larger number counts."""
    reported = state.load.running_requests + state.load.waiting_requests
    return max(reported, in_flight.get(state.record.replica_id, 0))
