"""Blocks, step costs, convergence, settings."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.simulator.blocks import BlockCache, Lease
from benchmarks.simulator.convergence import judge
from benchmarks.simulator.costs import StepPlanner, measured_survivals
from benchmarks.simulator.settings import SimulationSettings, WorkloadSettings
from benchmarks.simulator.workloads import Workload, arrival_times
from cluster.autoscaling.trace import LoadPoint


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 6), st.integers(0, 3)), max_size=40))
def test_blocks_balance_whatever_happens(moves: list[tuple[bool, int, int, int]]) -> None:
    """`told`: what a listener believes is there."""
    cache, leases, told = BlockCache(12), [], set()
    for opens, family, length, more in moves:
        if opens:
            chain = [100 * family + i for i in range(length)]
            free, hits = cache.free, cache.matched(chain)
            lease = cache.open(chain, more)
            if lease is not None:
                assert cache.free <= free
                cache.name(lease, chain[hits:])
                leases.append(lease)
        elif leases:
            cache.close(leases.pop(family % len(leases)))
        stored, removed = cache.take_events()
        told = (told - set(removed)) | set(stored)
        assert len(told) == len(cache)
        cache.check_invariants()
    for lease in leases:
        cache.close(lease)
    assert cache.free == cache.capacity


def test_the_oldest_unused_block_goes_first_and_those_in_use_stay() -> None:
    cache = BlockCache(4)
    first, second = cache.open([1, 2], 0), cache.open([3], 0)
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    cache.name(first, [1, 2])
    cache.name(second, [3])
    cache.close(first)
    assert cache.open([4, 5, 6, 7], 0) is None  # 3 is in use
    assert cache.open([4, 5], 0) is not None
    assert cache.take_events() == ([1, 3], [2])  # the end of a chain before its beginning


def test_steps_cost_more_with_more_work_and_yield_more_with_drafts() -> None:
    planner = StepPlanner("gpu_assumed")
    plain, drafted = planner.plan(8, 0, 0, 0, 0.0), planner.plan(8, 8, 0, 0, 2.0)
    assert (plain.tokens, plain.nodes) == (1.0, 0)
    assert drafted.tokens == pytest.approx(1.0 + sum(measured_survivals()))
    assert planner.plan(8, 8, 2000, 0, 2.0).ms > drafted.ms + 50.0
    assert planner.plan(8, 4, 0, 0, 2.0).tokens < drafted.tokens
    assert planner.plan(8, 8, 0, 0, 500.0).tokens < 1.05  # drafts that come far too late


def test_a_measured_processor_does_not_draft_under_load() -> None:
    assert StepPlanner("cpu_measured").plan(64, 64, 0, 0, 1.0).nodes == 0


def test_arrivals_follow_the_load() -> None:
    points = [LoadPoint(0.0, 10.0), LoadPoint(100.0, 30.0), LoadPoint(200.0, 30.0)]
    times = list(arrival_times(points, 1.0, random.Random(3)))
    assert times == sorted(times)
    before = sum(time_s < 100.0 for time_s in times)
    assert before == pytest.approx(1000, rel=0.15)
    assert len(times) - before == pytest.approx(3000, rel=0.1)


def test_turns_of_a_chat_grow_by_the_answer_and_the_question() -> None:
    workload = Workload(WorkloadSettings(kind="chat", turns=1000.0), 16, random.Random(1))
    (first,) = workload.arrive()
    second = workload.follow(first)
    assert second is not None
    known = first.chain + first.output
    assert second.chain[: len(known)] == known
    assert len(second.chain) > len(known)
    assert second.session == first.session


def test_a_pool_that_swings_does_not_converge() -> None:
    times = [float(i) for i in range(8)]
    steady = judge(times, [2, 2, 4, 6, 6, 6, 6, 6], 1.0, within_s=5.0)
    assert (steady.turns, steady.settled_s, steady.overshoot, steady.converged) == (0, 2.0, 0.0, True)
    swings = judge(times, [2, 2, 6, 4, 6, 4, 6, 6], 1.0, within_s=9.0)
    assert (swings.turns, swings.converged) == (4, False)
    above = judge(times, [2, 2, 9, 6, 6, 6, 6, 6], 1.0, within_s=5.0)
    assert (above.turns, above.overshoot, above.converged) == (1, 0.5, False)
    assert not judge(times, [2, 2, 2, 2, 2, 3, 4, 6], 1.0, within_s=5.0).converged
    with pytest.raises(ValueError, match="nothing was recorded"):
        judge(times, [1] * 8, 9.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"warmup_s": 120.0}, "must be less than duration_s"),
        ({"verifier_bounds": {"minimum": 3, "maximum": 2}}, "must not exceed"),
        ({"verifiers": 0}, "greater than or equal to 1"),
        ({"speed": 2}, "Extra inputs"),
        ({"workload": {"kind": "poetry"}}, "'chat', 'system_prompts', 'agents' or 'random'"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SimulationSettings.model_validate(given)
