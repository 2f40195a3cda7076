"""What fair sharing promises, on random loads: no starvation, bounded unfairness, no seat empty while someone waits."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.scheduling.fair_shares import FORGET_ABOVE, OUTPUT_COST, FairShares

SEATS = 3
MAX_PROMPT, MAX_OUTPUT = 40, 12


@dataclass
class Job:
    tenant: str
    prompt: int
    output: int


class Server:
    """Continuous batching in miniature: `SEATS` jobs at a time, one output token of each per step."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.shares = FairShares()
        self.weights = weights
        self.lines: dict[str, deque[Job]] = defaultdict(deque)
        self.running: list[Job] = []
        self.served: Counter[str] = Counter()
        self.order: list[Job] = []
        self.wasted = False  # a seat was empty in the last step although someone waited

    def submit(self, job: Job) -> None:
        self.shares.arrive(job.tenant, self.weights.get(job.tenant, 1.0))
        self.lines[job.tenant].append(job)

    def step(self) -> None:
        while len(self.running) < SEATS and (waiting := [name for name, line in self.lines.items() if line]):
            job = self.lines[min(waiting, key=lambda name: (self.shares.counter(name), name))].popleft()
            self.shares.start(job.tenant)
            self.shares.charge(job.tenant, job.prompt, 0)
            self.served[job.tenant] += job.prompt
            self.running.append(job)
            self.order.append(job)
        self.wasted = len(self.running) < SEATS and any(self.lines.values())
        for job in list(self.running):
            self.shares.charge(job.tenant, 0, 1)
            self.served[job.tenant] += int(OUTPUT_COST)
            job.output -= 1
            if not job.output:
                self.running.remove(job)
                self.shares.leave(job.tenant, waiting=False)


jobs = st.tuples(st.integers(1, MAX_PROMPT), st.integers(1, MAX_OUTPUT))
BOUND = MAX_PROMPT + OUTPUT_COST * SEATS * MAX_OUTPUT  # what can be committed to one tenant at a time


@given(st.lists(jobs, min_size=1), st.lists(jobs, min_size=1), st.sampled_from([0.5, 1.0, 3.0]))
def test_tenants_that_always_wait_are_served_by_their_weights(
    heavy: list[tuple[int, int]], light: list[tuple[int, int]], weight: float
) -> None:
    server = Server({"light": weight})
    for step in range(200):
        for name, kinds, at_least in (("heavy", heavy, 20), ("light", light, SEATS + 1)):  # neither line is ever empty
            while len(server.lines[name]) < at_least:
                prompt, output = kinds[step % len(kinds)]
                server.submit(Job(name, prompt, output))
        server.step()
        difference = server.served["heavy"] - server.served["light"] / weight
        assert abs(difference) <= 2 * BOUND / min(1.0, weight)


@given(st.lists(st.tuples(st.sampled_from("abcd"), jobs), max_size=60), st.lists(st.integers(0, 5), max_size=60))
def test_no_seat_is_empty_while_someone_waits_and_all_end(
    arrivals: list[tuple[str, tuple[int, int]]], pauses: list[int]
) -> None:
    server = Server({"a": 2.0})
    for i, (tenant, (prompt, output)) in enumerate(arrivals):
        server.submit(Job(tenant, prompt, output))
        for _ in range(pauses[i] if i < len(pauses) else 0):
            server.step()
    for _ in range(len(arrivals) * MAX_OUTPUT + 1):
        server.step()
        assert not server.wasted
    assert not server.running
    assert not any(server.lines.values()), "nobody starves"
    assert len(server.order) == len(arrivals)


@given(st.integers(1, 400))
def test_a_newcomer_waits_no_longer_than_what_runs(backlog: int) -> None:
    """However much another tenant has queued, one request of a new tenant gets the next seat."""
    server = Server({})
    for _ in range(backlog):
        server.submit(Job("heavy", 10, 5))
    for _ in range(3):
        server.step()
    server.submit(Job("new", 10, 5))
    before = len(server.order)
    while "new" not in [job.tenant for job in server.order]:
        server.step()
    assert [job.tenant for job in server.order[before:]].index("new") <= SEATS


def test_idle_time_is_not_saved_up() -> None:
    shares = FairShares()
    shares.arrive("busy", 1.0)
    shares.start("busy")
    shares.charge("busy", 10_000, 0)
    shares.arrive("busy", 1.0)
    shares.arrive("back", 1.0)
    assert shares.counter("back") == shares.counter("busy") == 10_000


def test_a_request_that_is_put_back_changes_no_counter() -> None:
    shares = FairShares()
    for tenant in ("a", "b"):
        shares.arrive(tenant, 1.0)
        shares.start(tenant)
    shares.charge("a", 100, 0)
    shares.arrive("a", 1.0)
    shares.put_back("b")
    assert (shares.counter("a"), shares.counter("b")) == (100, 0)


def test_weights_divide_what_was_served() -> None:
    shares = FairShares()
    shares.arrive("a", 4.0)
    shares.charge("a", 8, 4)
    assert shares.counter("a") == pytest.approx((8 + 4 * OUTPUT_COST) / 4.0)


def test_tenants_that_are_gone_are_forgotten() -> None:
    shares = FairShares()
    for i in range(4 * FORGET_ABOVE):
        shares.arrive(f"tenant {i}", 1.0)
        shares.start(f"tenant {i}")
        shares.charge(f"tenant {i}", 1, 0)
        shares.leave(f"tenant {i}", waiting=False)
    assert len(shares._counters) <= FORGET_ABOVE + 1
