"""A model of a cluster, just good enough to try a policy on: queues, seats, and replicas that take time to start.

It is a fluid: load is spread evenly over the replicas of a pool, requests come and go in fractions. Requests occupy a
seat for `service_s`, longer the fuller the verifiers are. A replica that is asked for runs after `start_s`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import Field

from cluster.autoscaling.snapshot import DrafterSignals, PoolView, Snapshot, VerifierSignals
from workers.core.settings import Settings

__all__ = ["ClusterModel", "Flow", "ReplayModel", "Replicas"]


TINY = 1e-9  # of a request


class ReplayModel(Settings):
    """What the replicas of a replay can do."""

    service_s: float = Field(10.0, gt=0.0, le=86_400.0, description="Time in a seat on an idle verifier")
    slowdown: float = Field(0.5, ge=0.0, le=100.0, description="How much longer on a full one, as a share")
    seats: int = Field(32, ge=1, le=4096, description="Requests that one verifier runs at a time")
    max_waiting: int = Field(256, ge=0, le=100_000, description="Requests that may wait at one verifier; others fail")
    kv_per_request: float = Field(0.02, ge=0.0, le=1.0, description="Share of a verifier's K/V memory that one takes")
    prefill_ms: float = Field(200.0, ge=0.0, le=3.6e6, description="Time to first token on an idle verifier")
    itl_ms: float = Field(25.0, ge=0.0, le=3.6e6, description="Time between tokens on an idle verifier")
    verifier_start_s: float = Field(120.0, ge=0.0, le=86_400.0, description="From the decision to the first request")
    drafter_start_s: float = Field(30.0, ge=0.0, le=86_400.0, description="The same for drafters")
    requests_per_drafter: float = Field(
        16.0, gt=0.0, le=4096.0, description="Requests for which one drafter has drafts in time"
    )
    max_sessions: int = Field(64, ge=1, le=4096, description="Sessions of one drafter")
    accepted_per_tree: float = Field(1.5, ge=0.0, le=64.0, description="Where the trace does not say it")
    window_s: float = Field(60.0, ge=1.0, le=3600.0, description="Over which replicas report")
    slo_ttft_ms: float = Field(2000.0, gt=0.0, le=3.6e6, description="A first token later than this is a violation")

    def needed(self, requests_per_s: float, utilization: float) -> float:
        """Verifiers that carry this load for ever, at this share of their seats."""
        return requests_per_s * self.service_s * (1 + self.slowdown * utilization) / (utilization * self.seats)


@dataclass
class Replicas:
    """One pool: what is asked for, what runs, what starts."""

    start_s: float
    target: int
    running: int
    starting: deque[tuple[float, int]] = field(default_factory=deque)  # when, how many

    def ask(self, target: int, now_s: float) -> None:
        """Those that have not started yet are given up first."""
        change = target - self.target
        self.target = target
        if change > 0:
            self.starting.append((now_s + self.start_s, change))
        while change < 0 and self.starting:
            due_s, count = self.starting.pop()
            gone = min(count, -change)
            change += gone
            if count > gone:
                self.starting.append((due_s, count - gone))
        if change < 0:
            self.running += change

    def advance(self, now_s: float) -> None:
        while self.starting and self.starting[0][0] <= now_s:
            self.running += self.starting.popleft()[1]


@dataclass(frozen=True)
class Flow:
    """What happened in one second or so."""

    arrived: float
    finished: float
    refused: float
    admitted: float
    ttft_ms: float


class ClusterModel:
    """`advance` it, look at it with `snapshot`, change it with `verifiers.ask` and `drafters.ask`."""

    def __init__(self, model: ReplayModel, verifiers: int, drafters: int | None) -> None:
        """Starts with replicas that run; `drafters` None: there is no such pool."""
        self.model = model
        self.verifiers = Replicas(model.verifier_start_s, verifiers, verifiers)
        self.drafters = None if drafters is None else Replicas(model.drafter_start_s, drafters, drafters)
        self.now_s = 0.0
        self.running = 0.0
        self.waiting = 0.0
        self._queue: deque[tuple[float, float]] = deque()  # who waits: since when, how many; the oldest first
        self._accepted = model.accepted_per_tree
        self._window: deque[tuple[float, Flow]] = deque()

    def advance(self, dt_s: float, requests_per_s: float, accepted_per_tree: float | None = None) -> Flow:
        """Let `dt_s` seconds pass."""
        model = self.model
        self.now_s += dt_s
        self.verifiers.advance(self.now_s)
        if self.drafters is not None:
            self.drafters.advance(self.now_s)
        self._accepted = model.accepted_per_tree if accepted_per_tree is None else accepted_per_tree
        arrived = requests_per_s * dt_s
        finished = min(self.running, self.running * dt_s / self._service_s())
        self.running -= finished
        seats = float(self.verifiers.running * model.seats)
        room = seats + self.verifiers.running * model.max_waiting - self.running - self.waiting
        taken = max(0.0, min(arrived, room))
        self.waiting += taken
        admitted = max(0.0, min(self.waiting, seats - self.running))
        self.waiting -= admitted
        self.running += admitted
        self._queue.append((self.now_s, taken))
        flow = Flow(taken, finished, arrived - taken, admitted, model.prefill_ms + 1e3 * self._waited_s(admitted))
        self._window.append((self.now_s, flow))
        while self._window[0][0] <= self.now_s - model.window_s:
            self._window.popleft()
        return flow

    def snapshot(self, verifier_bounds: tuple[int, int], drafter_bounds: tuple[int, int]) -> Snapshot:
        """What the policy sees; all replicas have just reported."""
        drafters = self.drafters
        return Snapshot(
            self.now_s,
            self._view(self.verifiers, verifier_bounds, self._verifier_signals),
            None if drafters is None else self._view(drafters, drafter_bounds, self._drafter_signals),
        )

    def _view(
        self,
        pool: Replicas,
        bounds: tuple[int, int],
        signals: Callable[[], VerifierSignals] | Callable[[], DrafterSignals],
    ) -> PoolView:
        replicas = (signals(),) * pool.running if pool.running else ()
        return PoolView(pool.running, pool.target, *bounds, replicas)  # type: ignore[arg-type]  # of one kind

    def _verifier_signals(self) -> VerifierSignals:
        count, flows = self.verifiers.running, [flow for _, flow in self._window]
        running = self.running / count
        delivered = self._delivered()
        demanded = sum(flow.finished for flow in flows) * 100.0 / count
        return VerifierSignals(
            age_s=0.0,
            running=running,
            waiting=self.waiting / count,
            seats=self.model.seats,
            kv_usage=min(1.0, running * self.model.kv_per_request),
            arrived=sum(flow.arrived for flow in flows) / count,
            finished=sum(flow.finished for flow in flows) / count,
            refused=sum(flow.refused for flow in flows) / count,
            ttft_ms=_p95(flows),
            itl_ms=self.model.itl_ms * (1 + self.model.slowdown * self._fullness()),
            demanded_nodes=demanded,
            delivered_nodes=demanded * delivered,
            proposals=demanded / 8,
            late=demanded / 8 * (1 - delivered),
            trees=demanded / 8,
            accepted=demanded / 8 * self._accepted,
        )

    def _drafter_signals(self) -> DrafterSignals:
        assert self.drafters is not None  # noqa: S101  # it is asked of pools that are there
        each = self.running / self.drafters.running
        busy = min(1.0, each / self.model.requests_per_drafter)
        return DrafterSignals(0.0, min(each, self.model.max_sessions), self.model.max_sessions, busy)

    def _delivered(self) -> float:
        """Share of the demanded nodes that drafters can compute."""
        if self.drafters is None or self.running == 0:
            return 1.0
        return min(1.0, self.drafters.running * self.model.requests_per_drafter / self.running)

    def _waited_s(self, admitted: float) -> float:
        """Of the last of the oldest `admitted` that waited, who are taken from the queue."""
        since_s = self.now_s
        while admitted > TINY and self._queue:
            since_s, count = self._queue.popleft()
            if count > admitted + TINY:
                self._queue.appendleft((since_s, count - admitted))
            admitted -= count
        return self.now_s - since_s

    def _fullness(self) -> float:
        seats = self.verifiers.running * self.model.seats
        return min(1.0, self.running / seats) if seats else 1.0

    def _service_s(self) -> float:
        return self.model.service_s * (1 + self.model.slowdown * self._fullness())


def _p95(flows: list[Flow]) -> float | None:
    """Of the times to first token, by the number of requests that had them."""
    ranked = sorted((flow for flow in flows if flow.admitted > 0), key=lambda flow: flow.ttft_ms)
    left = 0.95 * sum(flow.admitted for flow in ranked)
    for flow in ranked:
        left -= flow.admitted
        if left <= 0:
            return flow.ttft_ms
    return ranked[-1].ttft_ms if ranked else None
