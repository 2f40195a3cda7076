"""The autoscaling decision over simulated replicas."""

import math

import pytest

from benchmarks.simulator.scale import SCALE_AUTOSCALING, fluid, run_scale, scale_settings
from cluster.autoscaling.drafting import drafter_wishes
from cluster.autoscaling.snapshot import DrafterSignals, VerifierSignals
from cluster.autoscaling.wishes import Ground
from cluster.config.autoscaling import DrafterScaling
from tests.unit.simulator.clusters import ran


@pytest.fixture(scope="module")
def small() -> dict[str, dict[str, float]]:
    _, result = run_scale(scale_settings(30, SCALE_AUTOSCALING, 0))
    pools: dict[str, dict[str, float]] = result["pools"]
    return pools


def test_both_pools_grow_after_a_step_and_do_not_swing(small: dict[str, dict[str, float]]) -> None:
    for pool in small.values():
        assert pool["turns"] <= 1
        assert pool["last"] > 2 * pool["first"]
        assert pool["overshoot"] <= 0.25


def test_the_fluid_model_finds_about_the_same(small: dict[str, dict[str, float]]) -> None:
    _, smooth = fluid(scale_settings(30, SCALE_AUTOSCALING, 0))
    for name, pool in smooth["pools"].items():
        assert pool["last"] == pytest.approx(small[name]["last"], rel=0.35)


def test_pools_keep_their_size_without_settings() -> None:
    cluster = ran(load={"kind": "step", "base": 2.0, "peak": 20.0})
    assert (cluster.verifiers.target, cluster.drafters.target) == (3, 2)
    assert cluster.report()["replica_s"] == {"verifiers": 36, "drafters": 24}


def test_those_that_have_not_started_are_given_up_first() -> None:
    cluster = ran(duration_s=1.0)
    fleet = cluster.verifiers
    fleet.ask(6)
    cluster.timeline.run(30.0)
    fleet.ask(4)
    fleet.ask(5)  # asked for again: it starts anew
    cluster.timeline.run(61.5)
    assert (len(fleet.running), fleet.starting) == (4, 1)
    cluster.timeline.run(91.5)
    assert (len(fleet.running), fleet.starting) == (5, 0)
    fleet.ask(2)
    assert [one.draining for one in fleet.running] == [False, False]


def test_drafters_that_batch_are_not_asked_for_because_they_are_busy() -> None:
    """96 sessions need two drafters of 64, which compute all the time."""
    idle_share, sessions, drafters = 0.6, 96, 5
    for _ in range(20):
        busy = 1.0 - idle_share ** (sessions / drafters)
        signals = [DrafterSignals(0.0, sessions / drafters, 64, busy)] * drafters
        above = [VerifierSignals(0.0, 24, 0, 32, 0.5, demanded_nodes=1e3, delivered_nodes=9e2, proposals=1e3, late=50)]
        wishes, _ = drafter_wishes(
            signals, above, DrafterScaling(), Ground(drafters, drafters, settled=True), None, 0.0
        )
        drafters = math.ceil(max(wish.replicas for wish in wishes.values()))
    assert drafters == 2
