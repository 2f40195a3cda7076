"""A drafter may die, hang or crawl: it costs one step's wait, and no token."""

from contextlib import ExitStack

import pytest

from benchmarks.faults.connection import Shape
from benchmarks.faults.processes import kill, slowed
from tests.integration.faults.kinds import ENGINE_FAULTS, params
from tests.integration.faults.rig import MAX_GRACE_S, Rig

NEARLY = 0.9

USUAL = {"kill -9", "frozen", "black hole"}


@pytest.mark.parametrize("fault", params(ENGINE_FAULTS, USUAL))
def test_it_costs_one_steps_wait_and_no_token(rig: Rig, fault: str) -> None:
    before = len(rig.waits_ms())
    with rig.client() as client:
        answers = rig.ask_all(client, lambda: ENGINE_FAULTS[fault](rig.drafters[0]))
    assert all(answer.attempts == 1 for answer in answers)
    assert sum(answer.stats.accepted_tokens for answer in answers) > 0, "drafters took part"
    in_vain = [ms for ms in rig.waits_ms()[before:] if ms >= NEARLY * 1e3 * MAX_GRACE_S]
    assert max(in_vain, default=0.0) < 1e3 * MAX_GRACE_S * 3, "one wait is bounded"
    assert len(in_vain) <= len(rig.verifiers), "one step of each verifier waited in vain"


def test_slow_drafters_and_slow_networks(rig: Rig) -> None:
    rig.drafters[0].proxy.slow(Shape(latency_s=0.05, jitter_s=0.05, bytes_per_s=100_000))
    with rig.client() as client, ExitStack() as stack:
        rig.ask_all(client, lambda: stack.enter_context(slowed(rig.drafters[1].process, share=0.3)))


def test_without_any_drafter(rig: Rig) -> None:
    with rig.client() as client:
        rig.ask_all(client, lambda: [kill(node.process) for node in rig.drafters])
        rig.mend()
        assert sum(answer.stats.drafted_tokens for answer in rig.ask_all(client)) > 0, "the new ones are used"
