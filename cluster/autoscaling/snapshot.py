"""What the decision looks at, what it remembers and what it answers.

`decide(snapshot, settings, state)` in `cluster.autoscaling.decide` is the whole interface: call it as often as you
like (each second is plenty), put `target`s into effect, and hand `state` back the next time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "Decision",
    "DrafterSignals",
    "PoolDecision",
    "PoolState",
    "PoolView",
    "Snapshot",
    "State",
    "VerifierSignals",
]


@dataclass(frozen=True, slots=True)
class VerifierSignals:
    """One verifier's last report. Counts are of the window over which it reports (a minute)."""

    age_s: float  # since the report arrived
    running: float
    waiting: float
    seats: float  # max_running_requests
    kv_usage: float  # 0 to 1
    arrived: float = 0.0  # requests accepted into its queue
    finished: float = 0.0
    refused: float = 0.0  # because the queue was full: what arrived is then less than what came
    ttft_ms: float | None = None  # p95; None = no request got a first token
    itl_ms: float | None = None  # p95
    demanded_nodes: float = 0.0  # draft nodes that steps had room for
    delivered_nodes: float = 0.0  # of these, there in time
    proposals: float = 0.0
    late: float = 0.0  # of these, for tokens that were history by then
    trees: float = 0.0  # verified, one for each request and step
    accepted: float = 0.0  # draft tokens


@dataclass(frozen=True, slots=True)
class DrafterSignals:
    """One drafter's last report."""

    age_s: float
    sessions: float
    max_sessions: float
    busy: float  # share of the window spent computing, 0 to 1


@dataclass(frozen=True)
class PoolView:
    """A pool as it is. `target` counts replicas that are starting, `current` those that run."""

    current: int
    target: int
    min_replicas: int
    max_replicas: int
    replicas: tuple[VerifierSignals, ...] | tuple[DrafterSignals, ...]  # of running ones; may be fewer than `current`


@dataclass(frozen=True)
class Snapshot:
    """`now_s` on any clock that does not go back. A pool that is None is not scaled."""

    now_s: float
    verifiers: PoolView | None
    drafters: PoolView | None = None


@dataclass(frozen=True)
class Carried:
    """Sessions for which one drafter has drafts in time, as was seen at `at_s`."""

    sessions: float
    at_s: float
    why: str


@dataclass(frozen=True)
class Descent:
    """The steps down since the last step up."""

    start: int  # target before them
    wish: float  # the smallest that one of them was taken for


@dataclass(frozen=True)
class Doubt:
    """A load that needed more than it seemed to: the steps down that were taken for it had to be taken back."""

    wish: float  # what it asked for then
    until_s: float  # so long such a wish, or a larger one, takes no step down
    times: int  # in a row


@dataclass(frozen=True)
class PoolState:
    """What a pool's decision remembers."""

    up_since_s: float | None = None  # more is wanted since then, without a break
    up_least: int = 0  # the least that was wanted since then
    down_since_s: float | None = None
    down_most: int = 0
    last_up_s: float | None = None
    last_down_s: float | None = None
    descent: Descent | None = None  # None: the last step was one up
    doubt: Doubt | None = None
    ready: int = 0  # running replicas when their number last changed by much
    ready_since_s: float | None = None
    drained_s: float | None = None  # when a queue was last seen draining
    pays: bool = True  # drafters only
    carried: Carried | None = None  # drafters only; None: they were never too slow


@dataclass(frozen=True)
class State:
    """Between two decisions."""

    verifiers: PoolState = field(default_factory=PoolState)
    drafters: PoolState = field(default_factory=PoolState)


@dataclass(frozen=True)
class PoolDecision:
    """`target` is to be put into effect; `proposed` is what it would be without dry_run."""

    target: int
    proposed: int
    wishes: Mapping[str, float]  # replicas that each signal asks for
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """A pool that was None in the snapshot is None here."""

    verifiers: PoolDecision | None
    drafters: PoolDecision | None
    state: State
