"""What a choice takes and what the index weighs: python -m benchmarks.routing_decision

The real `RoutingPool` with the default policy, filled as event streams would fill it.
"""

import random
import sys
import tracemalloc
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from cluster.config.routing import PoolRouting
from cluster.router.decision import RoutedRequest
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.policies.registry import build_policy
from cluster.router.pool import RoutingPool
from cluster.router.prefix_index import PrefixIndex
from cluster.router.replica_table import key_of
from workers.core.provenance import provenance, write_result

__all__ = ["decision_times", "filled_pool", "memory_per_block"]

RESULTS = Path(__file__).parent / "results"
BLOCK, FINGERPRINT = 16, "f"
PROMPT_TOKENS = 2048
SHARED = 64  # different beginnings of prompts, of 1024 tokens each
CHOICES = 300
SEED = 0
TARGETS_MS = {64: 0.5, 1000: 5.0}


def prompt(number: int, rng: random.Random) -> RoutedRequest:
    """Half of it is shared with others."""
    beginning = random.Random(number % SHARED)
    tokens = [beginning.randrange(32_000) for _ in range(PROMPT_TOKENS // 2)]
    tokens += [rng.randrange(32_000) for _ in range(PROMPT_TOKENS // 2)]
    return RoutedRequest(f"r{number}", tokens, output_tokens=200)


def filled_pool(replicas: int, blocks: int, rng: random.Random) -> RoutingPool:
    """`blocks` different blocks are indexed, most on one replica, beginnings of prompts on a quarter of them."""
    config = PoolRouting()
    now = [0.0]
    pool = RoutingPool(
        "verifier", config, build_policy(config), max_sessions=1000, clock=lambda: now[0], draw=rng.random
    )
    records = [ReplicaRecord("verifier", f"v{i}", f"v{i}:1", 1, "m", FINGERPRINT, "t", BLOCK) for i in range(replicas)]
    pool.update_members(records)
    shared = [prompt(i, rng).block_hashes(FINGERPRINT, BLOCK)[: PROMPT_TOKENS // 2 // BLOCK] for i in range(SHARED)]
    own = (blocks - sum(map(len, shared))) // replicas
    for record in records:
        held = [block for chain in rng.sample(shared, SHARED // 4) for block in chain]
        held += [rng.getrandbits(64) for _ in range(own)]
        pool.apply(key_of(record), cleared=True, stored=held, removed=())
        load = ReplicaLoad(
            running_requests=rng.randrange(32),
            total_kv_blocks=8192,
            free_kv_blocks=rng.randrange(8192),
            waiting_tokens=rng.randrange(4096),
            prefill_tokens_per_s=20_000.0,
            max_running_requests=32,
        )
        pool.report(key_of(record), load)
    return pool


def decision_times(pool: RoutingPool, rng: random.Random) -> dict[str, float]:
    """Milliseconds of processor time of this thread: with and without hashing the prompt (once for both pools)."""
    whole, chosen = [], []
    for number in range(CHOICES):
        request = prompt(number, rng)
        started = thread_time()
        request.block_hashes(FINGERPRINT, BLOCK)
        hashed = thread_time()
        choice = pool.choose(request, lambda record: True)
        ended = thread_time()
        assert choice is not None  # noqa: S101
        pool.release(choice.records[0])
        whole.append((ended - started) * 1e3)
        chosen.append((ended - hashed) * 1e3)
    return {
        "p50": median(chosen),
        "p99": float(np.percentile(chosen, 99)),
        "best": min(chosen),
        "p50_with_hashing": median(whole),
    }


def memory_per_block(blocks: int, holders: int, replicas: int, rng: random.Random) -> float:
    """Bytes of the index for each different block, when each is held by so many of the replicas."""
    hashes = [rng.getrandbits(64) for _ in range(blocks)]
    index = PrefixIndex()
    tracemalloc.start()
    for block in hashes:
        for slot in rng.sample(range(replicas), holders):
            index.store(slot, [block])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / blocks


def main() -> None:
    rng = random.Random(SEED)
    result: dict[str, Any] = {"prompt_tokens": PROMPT_TOKENS, "policy": "kv_aware", "decision_ms": {}}
    for replicas, blocks in ((64, 100_000), (1000, 100_000), (1000, 1_000_000)):
        pool = filled_pool(replicas, blocks, rng)
        times = decision_times(pool, rng)
        found = {"replicas": replicas, "blocks": pool.index.num_blocks, **times, "target_ms": TARGETS_MS[replicas]}
        result["decision_ms"][f"{replicas} replicas, {blocks} blocks"] = found
        print(found)
    result["bytes_per_block"] = {
        f"{holders} of {replicas} replicas hold it": round(memory_per_block(20_000, holders, replicas, rng), 1)
        for holders, replicas in ((1, 64), (1, 1000), (4, 1000))
    }
    print(result["bytes_per_block"])
    argv = ["python", "-m", "benchmarks.routing_decision", *sys.argv[1:]]
    write_result(RESULTS / "routing_decision.json", result, provenance(argv, seed=SEED))


if __name__ == "__main__":
    main()
