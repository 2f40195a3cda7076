"""When requests are paused and resumed: hysteresis, probes while paused, control steps while active.

An evaluation compares what the next step would yield with proposals as they usually come and without any. A request
changes its state after `patience` evaluations in a row that agree, and one that is paused must promise `resume_margin`
more than one that is active, so that noise around break-even moves nothing. Within `pause_margin` of break-even drafts
that cost nothing when they are missing (prompt lookup) stay welcome.

Probes: while requests are paused, one of them is now and then given a few nodes for a few steps, to see whether its
text or the drafter has changed. A probe in which more was accepted than expected goes on until that is understood. Each
probe that changes nothing doubles the time to the next.

Control steps: what drafting costs a verifier that shares its machine shows only in steps without it. While requests are
active they are now and then paused together for a few steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.core.proposal import TreeBudget
from workers.scheduling.allocation import Offer, StepSnapshot, decide
from workers.scheduling.sessions import Session
from workers.scheduling.step_cost import StepCost, StepLoad

__all__ = ["Evaluation", "ModeSettings", "Modes", "evaluate"]

PROBE_STEPS = 4
SURPRISE = 1.0  # accepted nodes beyond the expected ones, in PROBE_STEPS
PROBE_BUDGET = TreeBudget(max_depth=3, max_width=2, max_nodes=4)
MAX_PROBE_INTERVAL = 2048
CONTROL_STEPS = 6
FIRST_CONTROL = 24  # active steps before the first control


@dataclass(frozen=True)
class ModeSettings:
    patience: int = 6
    resume_margin: float = 0.03
    pause_margin: float = 0.005
    probe_every: int = 96  # steps; 0 = never
    control_every: int = 1024  # steps; 0 = never


@dataclass(frozen=True)
class Evaluation:
    """Expected goodput with and without speculation, and who would take part."""

    wanted: frozenset[int]
    advantage: float  # goodput with / without


def evaluate(
    sessions: Sequence[Session], load: StepLoad, cost: StepCost, overhead_ms: float, settings: ModeSettings
) -> Evaluation:
    """`load`: the step without trees. `overhead_ms`: what speculating adds to a step besides rows."""
    handicap = 1.0 / (1.0 + settings.resume_margin)
    offers = tuple(Offer(s.profile.expected(1.0 if s.active else handicap), s.forced) for s in sessions)
    any_forced = any(s.forced for s in sessions)
    snapshot = StepSnapshot(
        load=replace(load, drafting=True),
        tokens=float(load.requests),
        cost=cost,
        max_nodes=sum(len(offer.survivals) for offer in offers),
        offers=offers,
    )
    nodes = decide(snapshot).nodes
    with_trees = _goodput(sessions, offers, nodes, snapshot.load, cost, 0.0 if any_forced else overhead_ms)
    forced_only = [chosen if s.forced else () for s, chosen in zip(sessions, nodes, strict=True)]
    without = _goodput(sessions, offers, forced_only, replace(load, drafting=any_forced), cost, 0.0)
    advantage = with_trees / without
    speculating = any(s.active and not s.probing for s in sessions)
    worth_it = advantage > (1.0 - settings.pause_margin if speculating else 1.0 + settings.resume_margin)
    taking = zip(sessions, nodes, strict=True)
    return Evaluation(frozenset(s.key for s, n in taking if s.forced or (n and worth_it)), advantage)


def _goodput(
    sessions: Sequence[Session],
    offers: Sequence[Offer],
    nodes: Sequence[Sequence[int]],
    load: StepLoad,
    cost: StepCost,
    overhead_ms: float,
) -> float:
    """Tokens per millisecond when each session's nodes are in with the probability that its proposals arrive."""
    tokens, rows = float(load.requests), 0.0
    for session, offer, chosen in zip(sessions, offers, nodes, strict=True):
        tokens += session.profile.arrival * sum(offer.survivals[n] for n in chosen)
        rows += session.profile.arrival * len(chosen)
    return tokens / (cost.ms(load.with_rows(round(rows))) + overhead_ms)


class Modes:
    """Applies evaluations to sessions. Counts steps; knows no clock."""

    def __init__(self, settings: ModeSettings) -> None:
        self._settings = settings
        self._probe_interval = settings.probe_every
        self._until_probe = settings.probe_every
        self._until_control = min(FIRST_CONTROL, settings.control_every)
        self._control_left = 0
        self._suspended: list[Session] = []

    def apply(self, sessions: Sequence[Session], evaluation: Evaluation) -> None:
        """One step has ended: pause and resume."""
        if self._control_left:
            self._continue_control()
            return
        for session in sessions:
            if not session.forced and not session.probing:
                self._vote(session, session.key in evaluation.wanted)
        self._probe([s for s in sessions if not s.forced], evaluation)
        self._start_control(sessions)

    def forget(self, session: Session) -> None:
        if session in self._suspended:
            self._suspended.remove(session)
        if session.probing:
            self._end_probe(session, wanted=False)

    @property
    def controlling(self) -> bool:
        return self._control_left > 0

    def _vote(self, session: Session, wanted: bool) -> None:
        session.votes = session.votes + 1 if wanted != session.active else 0
        if session.votes >= self._settings.patience:
            session.set_active(wanted)

    def _probe(self, sessions: Sequence[Session], evaluation: Evaluation) -> None:
        probing = next((s for s in sessions if s.probing), None)
        if probing is not None:
            if probing.arrived or probing.misses:
                probing.probing -= 1
            if probing.probing == 0:
                wanted = probing.key in evaluation.wanted
                if not wanted and probing.surprise >= SURPRISE:
                    self._begin_probe(probing)
                else:
                    self._end_probe(probing, wanted=wanted)
            return
        paused = [s for s in sessions if not s.active]
        if not self._settings.probe_every or not paused:
            return
        self._until_probe -= 1
        if self._until_probe <= 0:
            session = max(paused, key=lambda s: sum(s.profile.expected()))
            session.set_active(True)
            self._begin_probe(session)

    @staticmethod
    def _begin_probe(session: Session) -> None:
        session.probing, session.surprise = PROBE_STEPS, 0.0

    def _end_probe(self, session: Session, *, wanted: bool) -> None:
        if not wanted:
            session.set_active(False)
        session.probing = 0
        longer = min(2 * self._probe_interval, max(MAX_PROBE_INTERVAL, self._settings.probe_every))
        self._probe_interval = self._settings.probe_every if wanted else longer
        self._until_probe = 1 if wanted else self._probe_interval  # what changed for one may have changed for all

    def _start_control(self, sessions: Sequence[Session]) -> None:
        active = [s for s in sessions if s.active]
        if not self._settings.control_every or not active or any(s.forced or s.probing for s in active):
            return
        self._until_control -= 1
        if self._until_control <= 0:
            self._control_left = CONTROL_STEPS
            self._until_control = self._settings.control_every
            self._suspended = active
            for session in active:
                session.active = False

    def _continue_control(self) -> None:
        self._control_left -= 1
        if not self._control_left:
            for session in self._suspended:
                session.set_active(True)
            self._suspended = []
