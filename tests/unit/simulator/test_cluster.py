"""What must hold in every simulation, whatever the policy."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.simulator.blocks import BlockCache
from benchmarks.simulator.cluster import Cluster
from cluster.router.replica_table import key_of
from tests.unit.simulator.clusters import ran, settings


def both_pools(policy: str) -> dict[str, Any]:
    return {"verifiers": {"policy": policy}, "drafters": {"policy": policy}}


def report(cluster: Cluster) -> dict[str, Any]:
    """Without what depends on this machine."""
    return {name: value for name, value in cluster.report().items() if name != "decision_ms"}


def caches(cluster: Cluster) -> Iterator[BlockCache]:
    for pool in (cluster.verifiers.running, cluster.drafters.running):
        yield from (replica.cache for replica in pool)


@pytest.fixture(scope="module")
def usual() -> Cluster:
    return ran()


def test_the_same_seed_gives_the_same_result_and_another_one_does_not(usual: Cluster) -> None:
    assert report(ran()) == report(usual)
    assert report(ran(seed=1)) != report(usual)


def test_every_request_is_answered_or_still_there(usual: Cluster) -> None:
    left = sum(one.running + len(one.waiting) for one in usual.verifiers.running)
    found = report(usual)
    assert found["offered"] == found["finished"] + found["refused"] + left
    assert found["finished"] > 50


def test_blocks_add_up(usual: Cluster) -> None:
    for cache in caches(usual):
        cache.check_invariants()


def test_no_verifier_works_longer_than_it_lives(usual: Cluster) -> None:
    for one in usual.verifiers.running:
        assert 0.0 < one.totals.busy_s <= usual.settings.duration_s
        assert one.totals.seat_s <= one.totals.busy_s * usual.settings.verifier.seats


def test_gateways_know_what_the_replicas_hold_when_all_is_told(usual: Cluster) -> None:
    cluster = ran(duration_s=40.0, load={"kind": "spike", "base": 0.001, "peak": 20.0})
    for gateway in cluster.gateways:
        for one in cluster.verifiers.running:
            pool = gateway.pools["verifier"]
            slot = pool.table.slot(key_of(one.record))
            assert slot is not None
            assert pool.index.held_by(slot) == len(one.cache) > 0


def test_hits_of_a_single_replica_equal_those_computed_beforehand() -> None:
    """Endless memory, no concurrency: a block hits when it was in any prompt before."""
    load = {"base": 1.0}
    cluster = Cluster(settings(verifiers=1, drafters=0, duration_s=60.0, load=load, verifier={"cache_outputs": False}))
    prompts = []
    submit = cluster.submit
    cluster.submit = lambda prompt: (prompts.append(prompt), submit(prompt))  # type: ignore[method-assign,assignment,func-returns-value]
    cluster.run()
    known: set[int] = set()
    hits = total = 0
    for prompt in prompts:
        hits += next((i for i, block in enumerate(prompt.chain) if block not in known), len(prompt.chain))
        total += len(prompt.chain)
        known.update(prompt.chain)
    assert len(prompts) > 30
    assert cluster.report()["hit_rate"] == pytest.approx(hits / total, abs=1e-4)


def test_routing_by_caches_beats_taking_turns_on_shared_prefixes() -> None:
    aware, turns = (report(ran(routing=both_pools(policy))) for policy in ("kv_aware", "round_robin"))
    assert aware["offered"] == turns["offered"]  # the load does not depend on the policy
    assert aware["hit_rate"] > 1.1 * turns["hit_rate"]


def test_lost_verifiers_lose_no_request() -> None:
    cluster = ran(kills_per_hour=600.0, verifier={"start_s": 1.0}, drafter={"start_s": 1.0}, duration_s=20.0)
    found = report(cluster)
    left = sum(one.running + len(one.waiting) for one in cluster.verifiers.running)
    assert found["resumed"] > 0
    assert found["offered"] == found["finished"] + found["refused"] + left
    assert (cluster.verifiers.target, cluster.drafters.target) == (3, 2)
    for cache in caches(cluster):
        cache.check_invariants()


def test_full_queues_refuse() -> None:
    found = report(ran(verifiers=1, load={"base": 60.0}, verifier={"seats": 1, "max_waiting": 2}))
    assert found["refused"] > 0
    assert found["in_slo"] < 0.9


@pytest.mark.parametrize("kind", ["chat", "agents", "random"])
def test_every_workload_is_answered(kind: str) -> None:
    workload = {"kind": kind, "output_tokens": 30, "think_s": 1.0, "burst": 4, "shared_tokens": 256}
    found = report(ran(workload=workload))
    assert found["finished"] > 30
    assert (found["hit_rate"] > 0.3) == (kind != "random")
