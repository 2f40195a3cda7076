"""A verifier may die, hang or crawl: its answers go on elsewhere, from the tokens that are committed."""

import pytest

from benchmarks.faults.connection import Shape
from benchmarks.faults.processes import freeze, kill, slowed, thaw
from tests.integration.faults.kinds import ENGINE_FAULTS, params
from tests.integration.faults.rig import Rig, wait_until

USUAL = {"kill -9", "frozen", "connection cut"}


@pytest.mark.parametrize("fault", params(ENGINE_FAULTS, USUAL))
def test_its_answers_go_on_elsewhere(rig: Rig, fault: str) -> None:
    with rig.client() as client:
        answers = rig.ask_all(client, lambda: ENGINE_FAULTS[fault](rig.verifiers[0]))
        assert all(answer.attempts == 1 for answer in answers), "the gateway does it: clients do not notice"


def test_one_that_wakes_up_again_drops_what_it_had_and_is_used_again(rig: Rig) -> None:
    frozen = rig.verifiers[0]
    with rig.client() as client:
        rig.ask_all(client, lambda: freeze(frozen.process))
        assert all(answer.attempts == 1 for answer in rig.ask_all(client)), "new ones keep away from it"
        thaw(frozen.process)
        wait_until(rig.at_rest, "its requests were cancelled")

        def is_used() -> bool:
            answers = rig.ask_all(client, lambda: used.append(rig.running_requests(frozen)))
            return bool(answers) and used[-1] > 0

        used: list[int] = []
        wait_until(is_used, "it gets requests again")


@pytest.mark.slow
def test_a_slow_verifier_and_a_slow_network(rig: Rig) -> None:
    rig.verifiers[1].proxy.slow(Shape(latency_s=0.02, jitter_s=0.05, bytes_per_s=200_000))
    with rig.client() as client, slowed(rig.verifiers[0].process, share=0.3):
        rig.ask_all(client)


def test_both_verifiers_one_after_the_other(rig: Rig) -> None:
    """The same answers lose their verifier twice."""

    def kill_both() -> None:
        kill(rig.verifiers[0].process)
        wait_until(lambda: rig.running_requests(rig.verifiers[1]) == 4, "all answers go on at the other")
        rig.verifiers[0].server = rig.verifiers[0].start()
        rig.verifiers[0].proxy.upstreams[:] = [rig.verifiers[0].server.address]
        rig.announce()
        kill(rig.verifiers[1].process)

    with rig.client() as client:
        rig.ask_all(client, kill_both)
