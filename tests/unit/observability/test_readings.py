"""What replicas count is what the table of metrics says they do, and adds up to what answers say of themselves."""

from pathlib import Path

import pytest

from cluster.observability.definitions import metrics_of
from cluster.observability.metric import Kind, Pool
from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from tests.fakes.fake_verifier import Fault
from tests.fakes.scripted_proposer import ScriptedProposer, random_tree
from tests.unit.draft.rig import Rig, opening
from tests.unit.gateway.conftest import StartHarness, ask, gateway, tokenizer
from workers.core.errors import InvalidRequestError
from workers.core.readings import Readings
from workers.core.sampling_params import SamplingParams
from workers.draft.readings import read_drafter
from workers.verifier.readings import read_verifier

__all__ = ["gateway", "tokenizer"]


def is_complete(readings: Readings, pool: Pool) -> bool:
    """Exactly what the table has for this pool, with labels where it has one."""
    parts = {Kind.COUNTER: readings.totals, Kind.GAUGE: readings.levels, Kind.HISTOGRAM: readings.observed}
    for kind, part in parts.items():
        wanted = {one.name: one for one in metrics_of(pool) if one.kind is kind}
        assert set(part) == set(wanted)
        for name, value in part.items():
            assert isinstance(value, dict) == bool(wanted[name].label), name
    return True


def test_a_verifier(tiny_target: Path) -> None:
    engine = make_engine(tiny_loaded(tiny_target), ScriptedProposer(random_tree(512)))
    assert is_complete(read_verifier(engine, None), "verifier")
    sampling = SamplingParams(temperature=0.8, max_tokens=12, ignore_eos=True)
    results = run_all(engine, [make_request(range(20, 40), sampling, seed=seed) for seed in range(3)])
    stats = [one.stats for one in results if one.stats is not None]
    assert len(stats) == 3
    readings = read_verifier(engine, None)
    totals = readings.totals
    assert totals["spec_decode_num_drafts"] == sum(one.verify_steps - one.plain_steps for one in stats)
    assert totals["spec_decode_num_draft_tokens"] == sum(one.drafted_tokens for one in stats) > 0
    assert totals["spec_decode_num_accepted_tokens"] == sum(one.accepted_tokens for one in stats)
    assert totals["generation_tokens"] == sum(one.output_tokens for one in stats) == 36
    assert totals["prefix_cache_queries"] == 60
    assert totals["prefix_cache_hits"] == sum(one.cached_prompt_tokens for one in stats)
    deepest = max(len(one.drafted_per_depth) for one in stats)
    for name, field in (("num_drafts", "drafted_per_depth"), ("num_accepted_tokens", "accepted_per_depth")):
        summed = {
            str(depth): sum(getattr(one, field)[depth] for one in stats if depth < len(getattr(one, field)))
            for depth in range(deepest)
        }
        assert totals[f"spec_decode_{name}_per_pos"] == summed
    assert totals["requests_ended"] == {"stop": 0, "length": 3, "cancelled": 0, "deadline": 0, "error": 0}
    assert totals["engine_steps"] >= totals["spec_decode_step_cost_steps"] > 0  # type: ignore[operator]
    assert totals["spec_decode_step_cost_predicted_seconds"] > 0  # type: ignore[operator]
    assert totals["spec_decode_step_cost_measured_seconds"] > 0  # type: ignore[operator]
    assert len(readings.observed["time_to_first_token_seconds"]) == 3
    assert len(readings.observed["request_queue_time_seconds"]) == 3
    assert len(readings.observed["inter_token_latency_seconds"]) > 3
    assert readings.levels["num_requests_running"] == 0
    engine.stop()


def test_preemptions_are_counted(tiny_target: Path) -> None:
    engine = make_engine(tiny_loaded(tiny_target), ScriptedProposer(random_tree(512)), num_blocks=12)
    sampling = SamplingParams(temperature=0.8, max_tokens=24, ignore_eos=True)
    results = run_all(engine, [make_request(range(20 + seed, 34 + seed), sampling, seed=seed) for seed in range(4)])
    preempted = sum(one.stats.preemptions for one in results if one.stats is not None)
    assert read_verifier(engine, None).totals["num_preemptions"] == preempted > 0
    engine.stop()


def test_a_drafter() -> None:
    rig = Rig()
    assert is_complete(read_drafter(rig.engine), "drafter")
    rig.open(opening(1, (1, 2, 3, 4, 5)), opening(2, (1, 2, 3, 4, 9, 10)))
    while rig.engine.step():
        pass
    readings = read_drafter(rig.engine)
    assert readings.totals["drafter_sessions_opened"] == 2
    assert readings.totals["prefix_cache_queries"] == 11
    assert readings.totals["drafter_proposals"] == sum(map(len, rig.proposals.values())) > 0
    assert readings.levels["drafter_sessions"] == 2
    assert 0 < readings.levels["kv_cache_usage_perc"] < 1  # type: ignore[operator]


async def test_a_gateway(gateway: StartHarness) -> None:
    """Good requests, wrong ones, one whose reader leaves, and one that loses a verifier."""
    async with gateway({"faults": [Fault(after_tokens=6)]}) as harness:
        await harness.settle()
        assert is_complete(harness.service.readings(), "gateway")
        prompt = (await harness.run(ask()))[0].started.prompt_tokens
        with pytest.raises(InvalidRequestError):
            await harness.run(ask(temperature=-1.0))
        leaving = harness.service.generate(ask(n=2))
        await anext(leaving)
        await anext(leaving)
        running = harness.service.readings()
        assert running.levels["gateway_requests_running"] == 1
        await leaving.aclose()
        readings = harness.service.readings()
    outcomes = readings.totals["gateway_requests"]
    assert isinstance(outcomes, dict)
    assert {name: count for name, count in outcomes.items() if count} == {
        "ok": 1,
        "invalid_argument": 1,
        "client_gone": 1,
    }
    assert readings.totals["gateway_prompt_tokens"] == 2 * prompt
    assert readings.totals["gateway_output_tokens"] >= 20  # type: ignore[operator]
    assert readings.totals["gateway_lost_verifiers"] == 1
    decisions = readings.totals["routing_decisions"]
    assert isinstance(decisions, dict)
    assert decisions["verifier"] >= 3
    assert decisions["drafter"] == 0
    assert readings.levels["routing_replicas"] == {"verifier": 1, "drafter": 0}
    assert readings.levels["gateway_requests_running"] == 0
    assert len(running.observed["gateway_request_seconds"]) == 2
    assert len(readings.observed["gateway_request_seconds"]) == 1
