"""The controller against machines and drafters that are known: it finds the better of off and on, and stays there."""

import random
from collections.abc import Callable

import pytest

from tests.engine.scheduling.simulator import LIMITS, Machine, Simulation, Totals, profile_of
from workers.scheduling.controller import BudgetController
from workers.scheduling.modes import ModeSettings

CPU = Machine(fixed_ms=60.0, row_ms=3.2)
GPU = Machine(fixed_ms=20.0, row_ms=0.1, free_rows=64)
SHARED = Machine(fixed_ms=60.0, row_ms=3.2, drafting_ms=30.0)


def noisy(machine: Machine, noise: Callable[[random.Random], float]) -> Machine:
    return Machine(machine.fixed_ms, machine.row_ms, machine.free_rows, machine.drafting_ms, noise)


def simulate(machine: Machine, acceptance: float, mode: str = "auto", **settings: float) -> Simulation:
    controller = BudgetController(ModeSettings(**settings), profile_of(machine))  # type: ignore[arg-type]
    return Simulation(machine, acceptance, mode, controller=controller)


def after_learning(simulation: Simulation, steps: int, requests: int) -> Totals:
    simulation.run(150, requests)
    return simulation.run(steps, requests)


@pytest.mark.parametrize("requests", [1, 16])
@pytest.mark.parametrize("machine", [CPU, GPU, SHARED], ids=["cpu", "gpu", "shared"])
@pytest.mark.parametrize("acceptance", [0.0, 0.4, 0.85])
def test_as_good_as_the_better_of_off_and_on(machine: Machine, acceptance: float, requests: int) -> None:
    jittery = noisy(machine, lambda rng: rng.uniform(0.9, 1.1))
    totals = {m: after_learning(simulate(jittery, acceptance, m), 200, requests) for m in ("off", "on", "auto")}
    assert totals["auto"].rate >= 0.95 * max(totals["off"].rate, totals["on"].rate)
    assert totals["auto"].rate >= 0.98 * totals["off"].rate


@pytest.mark.parametrize("machine", [CPU, SHARED], ids=["cpu", "shared"])
def test_a_load_ramp_never_falls_below_the_better_neighbour(machine: Machine) -> None:
    jittery = noisy(machine, lambda rng: rng.uniform(0.9, 1.1))
    worlds = {mode: simulate(jittery, 0.6, mode) for mode in ("off", "on", "auto")}
    for world in worlds.values():
        world.run(150, 1)
    for requests in (1, 2, 4, 6, 8, 12, 16, 32, 12, 4):
        totals = {mode: world.run(200, requests) for mode, world in worlds.items()}
        assert totals["auto"].rate >= 0.97 * max(totals["off"].rate, totals["on"].rate), requests


def test_when_nothing_is_accepted_almost_nothing_is_asked() -> None:
    simulation = simulate(SHARED, 0.0)
    simulation.run(300, 4)
    totals = simulation.run(2000, 4)
    assert totals.asked <= 0.01 * 4 * 2000
    assert totals.rate >= 0.99 * simulate(SHARED, 0.0, "off").run(2000, 4).rate


def test_probes_find_a_drafter_that_became_good() -> None:
    simulation = simulate(CPU, 0.0)
    simulation.run(300, 2)
    assert simulation.controller.num_active == 0
    simulation.acceptance = 0.9
    simulation.run(1200, 2)
    assert simulation.controller.num_active == 2
    assert simulation.run(200, 2).rate > 1.8 * simulate(CPU, 0.9, "off").run(200, 2).rate


def test_a_probe_that_surprises_goes_on_until_it_is_understood() -> None:
    """Short requests, one at a time: none lives long enough for the evidence of several probes."""
    simulation = simulate(CPU, 0.0)
    for _ in range(10):
        simulation.run(64, 1)
        simulation.run(0, 0)
    simulation.acceptance = 0.95
    asked = []
    for _ in range(14):
        asked.append(simulation.run(64, 1).asked)
        simulation.run(0, 0)
    assert max(asked[:10]) > 40, "within two of the longest pauses"
    assert min(asked[10:]) > 40, "and from then on always"


def test_without_probes_a_paused_request_stays_paused() -> None:
    simulation = simulate(CPU, 0.0, probe_every=0)
    simulation.run(300, 1)
    assert simulation.run(2000, 1).asked == 0


def test_falling_load_resumes_without_a_probe() -> None:
    simulation = simulate(CPU, 0.6, probe_every=0)
    simulation.run(200, 2)
    simulation.run(300, 32)
    assert simulation.controller.num_active <= 2
    simulation.run(60, 2)
    assert simulation.controller.num_active == 2


@pytest.mark.parametrize("acceptance", [0.15, 0.25, 0.35])
@pytest.mark.parametrize("requests", [2, 4, 8])
def test_noise_around_break_even_does_not_flap(acceptance: float, requests: int) -> None:
    busy = noisy(CPU, lambda rng: 2.0 if rng.random() < 0.05 else rng.uniform(0.85, 1.15))
    simulation = simulate(busy, acceptance, probe_every=0, control_every=0)
    simulation.run(300, requests)
    changes, active = 0, simulation.controller.num_active
    for _ in range(600):
        simulation.run(1, requests)
        changes += abs(simulation.controller.num_active - active)
        active = simulation.controller.num_active
    assert changes <= 4 * requests, "each request changes its state every 150 steps at most"


def test_drafters_are_asked_for_about_what_is_verified() -> None:
    simulation = simulate(CPU, 0.5)
    simulation.run(300, 4)
    totals = simulation.run(200, 4)
    per_step = totals.drafted / totals.asked
    hints = [simulation.controller.hint(key, LIMITS) for key in simulation.keys]
    assert all(per_step - 1 <= hint.max_nodes <= 1.25 * per_step + 3 for hint in hints)
    assert all(hint.max_depth <= LIMITS.max_depth and hint.max_width == LIMITS.max_width for hint in hints)


def test_forced_requests_are_neither_paused_nor_cut() -> None:
    simulation = simulate(CPU, 0.0, "on")
    totals = simulation.run(200, 16)
    assert totals.asked == 16 * 200
    assert totals.drafted == totals.asked * LIMITS.max_depth


def test_books_balance() -> None:
    simulation = simulate(CPU, 0.5)
    for requests in (8, 1, 16, 0, 3):
        simulation.run(40, requests)
        assert simulation.controller.num_sessions == requests
