"""What choosing a replica is expected to cost, in milliseconds: the parts of `kv_aware`.

Each scorer takes a request and a pool and returns [replicas].
"""

from collections.abc import Callable

import numpy as np

from cluster.router.snapshot import Floats, PoolSnapshot, RequestShape

__all__ = ["Scorer", "kv_pressure_ms", "lateness_ms", "load_ms", "prefill_ms", "queue_ms", "session_ms"]

SEAT_WAIT = 10.0

Scorer = Callable[[RequestShape, PoolSnapshot], Floats]


def prefill_ms(default_tokens_per_s: float) -> Scorer:
    """Computing what the replica does not hold of the prompt; one token at least is always computed."""

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        missing = np.maximum(request.prompt_tokens - pool.cached_tokens, 1)
        return missing / _tokens_per_ms(pool, default_tokens_per_s)

    return score


def queue_ms(default_tokens_per_s: float) -> Scorer:
    """Computing the prompts that are there before it."""

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        return pool.waiting_tokens / _tokens_per_ms(pool, default_tokens_per_s)

    return score


def load_ms(full_ms: float) -> Scorer:
    """Sharing steps with running requests: `full_ms` when every seat is taken. Whoever finds no seat waits for answers
    to end, which takes far longer than a step: beyond the last seat the cost rises ten times as fast."""

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        without_seat = np.maximum(pool.requests + 1 - pool.seats, 0)
        share: Floats = (pool.requests + SEAT_WAIT * without_seat) / pool.seats
        return full_ms * share

    return score


def kv_pressure_ms(full_ms: float, begins_at: float) -> Scorer:
    """Preemption, and the eviction of blocks that others could reuse.

    Nothing while the request leaves the replica's cache filled up to the share `begins_at`; from there on rising to
    `full_ms` where it is full, and on where the request does not fit.
    """

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        tokens = request.prompt_tokens - pool.cached_tokens + request.output_tokens
        held = pool.total_blocks - pool.free_blocks + tokens / pool.block_size
        filled = held / np.maximum(pool.total_blocks, 1)
        pressure: Floats = np.maximum(filled - begins_at, 0.0) / (1.0 - begins_at)
        return np.where(pool.total_blocks > 0, full_ms * pressure, 0.0)

    return score


def session_ms(away_ms: float) -> Scorer:
    """Going elsewhere than the session's latest request went, whose blocks may not have been announced yet."""

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        if not pool.session_home.any():
            return np.zeros(len(pool))
        return np.where(pool.session_home, 0.0, away_ms)

    return score


def lateness_ms() -> Scorer:
    """What a drafter takes to answer; where that is unknown, the mean of the others."""

    def score(request: RequestShape, pool: PoolSnapshot) -> Floats:
        is_known = pool.response_ms > 0
        if not is_known.any():
            return np.zeros(len(pool))
        return np.where(is_known, pool.response_ms, pool.response_ms[is_known].mean())

    return score


def _tokens_per_ms(pool: PoolSnapshot, default_tokens_per_s: float) -> float:
    return (pool.usual_prefill_tokens_per_s or default_tokens_per_s) / 1e3
