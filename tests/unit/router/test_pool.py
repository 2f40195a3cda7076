"""Choices: what counts, what is noted, what is forgotten."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.v1 import verifier_pb2

from cluster.router.load import ReplicaLoad
from cluster.router.replica_table import ReplicaTable, key_of, requests_of
from tests.unit.router.pools import Rig, record, request
from workers.core.errors import InternalError


def fresh(number: int) -> range:
    """A prompt that shares nothing with others."""
    return range(1000 * number, 1000 * number + 64)


def test_the_holder_of_the_prefix_is_chosen() -> None:
    rig = Rig()
    rig.holds("b", request(), 8)
    rig.holds("c", request(), 3)
    choice = rig.choose()
    assert [one.replica_id for one in choice.decision.candidates] == ["b", "c", "a"]
    assert [one.cached_tokens for one in choice.decision.candidates] == [32, 12, 0]
    assert choice.decision.candidates[0].terms["prefill"] == 64.0  # twice 64 - 32 tokens at one a millisecond
    assert (choice.decision.prompt_tokens, choice.decision.num_replicas, choice.decision.num_chosen) == (64, 3, 1)


def test_a_replica_that_only_computes_short_rests_is_not_punished_for_it() -> None:
    """Each step has a price of its own: few tokens in a step look slow."""
    rig = Rig()
    rig.report("b", prefill_tokens_per_s=100.0)
    rig.holds("b", request(), 8)
    assert rig.chosen() == "b"


def test_a_salt_sees_no_blocks_of_others() -> None:
    rig = Rig()
    rig.holds("b", request(), 16)
    assert rig.choose(request(cache_salt="tenant")).decision.candidates[0].cached_tokens == 0


def test_load_outweighs_a_short_prefix() -> None:
    rig = Rig()
    rig.holds("b", request(), 4)
    rig.report("b", running_requests=8)
    assert rig.chosen() in ("a", "c")


def test_prompts_that_wait_count() -> None:
    rig = Rig(("a", "b"))
    rig.report("a", waiting_tokens=500)
    assert rig.chosen() == "b"


def test_a_full_cache_is_avoided() -> None:
    rig = Rig(("a", "b"))
    rig.report("a", free_kv_blocks=10)
    assert [rig.chosen(request(fresh(i))) for i in range(3)] == ["b"] * 3


def test_equal_prompts_in_a_burst_stick_together_and_do_not_pile_up() -> None:
    rig = Rig()
    chosen = [rig.chosen(request(range(400))) for _ in range(30)]
    assert len(set(chosen[:8])) == 1  # a replica has eight seats
    assert len(set(chosen)) == 3
    assert max(Counter(chosen).values()) < 15


def test_expected_blocks_are_forgotten_when_nobody_announces_them() -> None:
    rig = Rig()
    first = rig.chosen()
    rig.now = 9.9
    assert rig.chosen() == first
    rig.now = 30.0
    assert rig.choose().decision.candidates[0].cached_tokens == 0


def test_requests_that_share_nothing_take_turns() -> None:
    rig = Rig()
    chosen = []
    for number in range(9):
        choice = rig.choose(request(fresh(number)))
        chosen.append(choice.records[0].replica_id)
        rig.pool.release(choice.records[0])
    assert Counter(chosen) == {"a": 3, "b": 3, "c": 3}


def test_a_report_replaces_what_was_noted() -> None:
    rig = Rig(("a", "b"))
    for number in range(4):
        rig.choose(request(fresh(number)))
    slot = rig.pool.table.slot(key_of(rig.records["a"]))
    slots = rig.pool.table.those(lambda one: True)
    assert list(requests_of(rig.pool.table.rows(slots))) == [2, 2]
    rig.report("a", running_requests=5)  # two of ours, three of other gateways
    assert requests_of(rig.pool.table.rows(slots))[slot] == 5
    rig.report("a", running_requests=0)  # not there yet
    assert requests_of(rig.pool.table.rows(slots))[slot] == 2


def test_a_session_stays_where_it_was() -> None:
    rig = Rig()
    first = rig.chosen(request(fresh(1), session_id="s"))
    rig.now = 1000.0
    rig.choose(request(fresh(2)))
    for name in rig.names:
        rig.report(name, running_requests=1)
    assert rig.chosen(request(fresh(3), session_id="s")) == first
    candidates = rig.choose(request(fresh(4), session_id="s")).decision.candidates
    assert {one.replica_id: one.terms["session"] for one in candidates} == {"a": 50.0, "b": 50.0, "c": 50.0} | {
        first: 0.0
    }


def test_only_so_many_sessions_are_remembered() -> None:
    rig = Rig(max_sessions=2)
    for number in range(5):
        rig.choose(request(fresh(number), session_id=f"s{number}"))
    assert len(rig.pool._sessions) == 2


def test_a_restarted_replica_holds_nothing() -> None:
    rig = Rig(("a", "b"))
    rig.holds("a", request(), 8)
    again = record("a", incarnation=2)
    rig.pool.update_members([again, rig.records["b"]])
    assert rig.choose().decision.candidates[0].cached_tokens == 0
    # What the dead process still says is not heard.
    old = key_of(rig.records["a"])
    rig.pool.apply(old, cleared=False, stored=request().block_hashes("f", 4), removed=())
    rig.pool.report(old, ReplicaLoad(running_requests=99))
    rig.now = 100.0
    assert rig.choose().decision.candidates[0].cached_tokens == 0
    assert rig.pool.load(old) == ReplicaLoad()


def test_two_models_have_their_own_blocks() -> None:
    """While a deployment is updated."""
    rig = Rig(("a",))
    rig.pool.update_members([rig.records["a"], record("new", fingerprint="g")])
    rig.holds("a", request(), 8)
    rig.pool.apply(("new", 1), cleared=True, stored=request().block_hashes("g", 4)[:4], removed=())
    cached = {one.replica_id: one.cached_tokens for one in rig.choose().decision.candidates}
    assert cached == {"a": 32, "new": 16}


def test_slots_are_used_again_without_their_past() -> None:
    rig = Rig(tuple(f"r{i}" for i in range(20)))
    for name in rig.names:
        rig.holds(name, request(), 5)
    rig.pool.update_members([record(f"s{i}") for i in range(20)])
    assert len(rig.pool.table) == 20
    assert rig.pool.index.num_blocks == 0
    assert rig.choose(request(fresh(3))).decision.num_replicas == 20


def test_models_that_are_gone_are_forgotten() -> None:
    """Updates, one after the other: two models are live at a time, and the blocks of each are its own."""
    rig = Rig(("a",))
    for number in range(20):
        models = [str(number), str(number + 1)]
        replicas = [record(f"of {model}", fingerprint=model) for model in models]
        rig.pool.update_members(replicas)
        rig.pool.apply(key_of(replicas[0]), cleared=True, stored=request().block_hashes(models[0], 4), removed=())
        cached = {one.replica_id: one.cached_tokens for one in rig.choose().decision.candidates}
        assert cached.pop(f"of {models[0]}") == 64
        assert set(cached.values()) == {0}
        rig.pool.apply(key_of(replicas[0]), cleared=True, stored=(), removed=())
        rig.now += 1000.0
    assert len(rig.pool._groups) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=100))
def test_a_slot_has_one_replica(steps: list[tuple[bool, int]]) -> None:
    table, slots = ReplicaTable(), dict[str, int]()
    for come, number in steps:
        name = f"r{number}"
        if come and name not in slots:
            slots[name] = table.add(record(name), 0)
            assert slots[name] == min(set(range(table.num_slots)) - (set(slots.values()) - {slots[name]}))
        elif not come and name in slots:
            assert table.drop(key_of(record(name))) == slots.pop(name)
        assert len(set(slots.values())) == len(slots) == len(table)
        assert all(table.record(slot).replica_id == one for one, slot in slots.items())


def test_nobody_is_usable() -> None:
    assert Rig().pool.choose(request(), lambda one: False) is None


def test_drafters_are_ranked() -> None:
    rig = Rig()
    rig.holds("c", request(), 8)
    choice = rig.choose(count=2)
    assert choice.records[0].replica_id == "c"
    assert len(choice.records) == 2
    assert rig.pool.table.rows(rig.pool.table.those(lambda one: True))["in_flight"].sum() == 1


def test_late_drafters_cost_their_lateness() -> None:
    rig = Rig(("a", "b", "c"))
    rig.report("a", response_ms=40.0)
    rig.report("b", response_ms=10.0)
    terms = {one.replica_id: one.terms["lateness"] for one in rig.choose().decision.candidates}
    assert terms == {"a": 40.0, "b": 10.0, "c": 25.0}


class _Nobody:
    def costs(self, request: object, pool: object) -> dict[str, object]:
        import numpy as np

        return {"never": np.full(len(pool), np.inf)}  # type: ignore[arg-type]


def test_a_policy_that_excludes_all_is_named() -> None:
    rig = Rig(settings={"policy": "tests.unit.router.test_pool:_Nobody"})
    with pytest.raises(InternalError, match="_Nobody excludes all 3 verifiers"):
        rig.choose()


def test_all_drafters_may_be_excluded() -> None:
    rig = Rig(settings={"policy": "tests.unit.router.test_pool:_Nobody"}, pool_name="drafter")
    assert rig.pool.choose(request(), lambda record: True, 2) is None
    assert not rig.in_flight()


@pytest.mark.parametrize("nonsense", [float("inf"), float("nan"), -1.0])
def test_a_replica_that_reports_nonsense_harms_nobody(nonsense: float) -> None:
    wire = verifier_pb2.ReplicaLoad(response_ms=nonsense, prefill_tokens_per_s=nonsense, running_requests=2)
    load = ReplicaLoad.from_wire(wire)
    assert load == ReplicaLoad(running_requests=2)
    rig = Rig()
    rig.pool.report(key_of(record("a")), load)
    assert len(rig.choose(count=3).records) == 3


def test_what_ends_after_a_replica_was_away_for_a_moment_is_not_owed_to_it() -> None:
    rig = Rig(("a",))
    chosen = [rig.choose(request(fresh(i))).records[0] for i in range(3)]
    rig.pool.update_members([])
    rig.pool.update_members([record("a")])
    for one in chosen:
        rig.pool.release(one)
    rig.choose(request(fresh(9)))
    assert requests_of(rig.pool.table.rows(rig.pool.table.those(lambda one: True))) == [1]
