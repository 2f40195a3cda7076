"""What a verifier reports to the autoscaler: by the meter alone, and by an engine that runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.engines import Collector, make_engine, make_request, run_all, tiny_loaded
from tests.fakes.scripted_proposer import ScriptedProposer, random_tree
from workers.core.errors import OverloadedError
from workers.core.sampling_params import SamplingParams
from workers.verifier.load_meter import LoadMeter


@dataclass
class Clock:
    now_s: float = 50.0

    def __call__(self) -> float:
        return self.now_s


def test_latencies_and_counts() -> None:
    clock = Clock()
    meter = LoadMeter(clock)
    assert (meter.window()["ttft_ms"], meter.window()["itl_ms"]) == (-1.0, -1.0)
    meter.counters.arrived += 1
    meter.committed(7, 49.8, tokens=1, tree_nodes=0, accepted=0, depth=0)  # first token after 200 ms
    clock.now_s += 0.3
    meter.committed(7, 49.8, tokens=3, tree_nodes=8, accepted=2, depth=3)  # 100 ms for each
    meter.ended(7)
    meter.ended(8)  # never got a token
    seen = meter.window(proposals=4.0, late=1.0)
    assert seen["ttft_ms"] == pytest.approx(200, rel=0.1)
    assert seen["itl_ms"] == pytest.approx(100, rel=0.1)
    expected = {"arrived": 1, "finished": 2, "trees": 1, "accepted": 2, "proposals": 4, "late": 1, "refused": 0}
    assert {name: seen[name] for name in expected} == expected
    assert all(type(value) is float for value in seen.values())
    assert not meter._told_at
    clock.now_s += 130.0
    meter.window()
    clock.now_s += 61.0
    assert meter.window()["arrived"] == 0.0


def test_an_engine_counts_what_it_does(tiny_target: Path) -> None:
    engine = make_engine(tiny_loaded(tiny_target), ScriptedProposer(random_tree(512)), max_waiting_requests=0)
    sampling = SamplingParams(temperature=0.8, max_tokens=12, ignore_eos=True)
    results = run_all(engine, [make_request(range(20, 40), sampling, seed=seed) for seed in range(3)])
    stats = [one.stats for one in results if one.stats is not None]
    assert len(stats) == 3
    seen = engine.load.window()
    assert (seen["arrived"], seen["finished"], seen["refused"]) == (3.0, 3.0, 0.0)
    assert seen["trees"] == sum(one.verify_steps - one.plain_steps for one in stats)
    assert seen["accepted"] == sum(one.accepted_tokens for one in stats)
    assert seen["demanded_nodes"] >= seen["delivered_nodes"] > 0
    assert seen["ttft_ms"] > 0
    assert seen["itl_ms"] > 0
    assert engine.kv_usage == pytest.approx(0.0)
    engine.stop()


def test_refusals_are_counted(tiny_target: Path) -> None:
    engine = make_engine(tiny_loaded(tiny_target), max_running_requests=1, max_waiting_requests=0)
    request = make_request(range(20, 40), SamplingParams(max_tokens=400, ignore_eos=True), seed=1)
    key = engine.submit(request, Collector())
    with pytest.raises(OverloadedError):
        engine.submit(request, Collector())
    engine.cancel(key)
    assert engine.load.window()["refused"] == 1.0
    assert engine.max_running == 1
    engine.stop()
