"""The budget controller: how much of what is proposed each step verifies, and who is asked at all.

One for each verifier, called by its engine's thread in this order:

    open / close        a request comes and goes
    active, hint        who is asked for a proposal, and how large it should be
    grace               how long the step may wait for proposals that are still to come
    choose              which proposed nodes are verified
    learn, record_step  what was accepted, what it cost
    end_step            pause and resume

It knows neither clocks nor devices: all measurements are arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workers.core.proposal import Proposal, TreeBudget
from workers.scheduling.allocation import Offer, StepDecision, StepSnapshot, decide
from workers.scheduling.grace import Pending, grace_ms
from workers.scheduling.modes import PROBE_BUDGET, Evaluation, Modes, ModeSettings, evaluate
from workers.scheduling.sessions import DraftProfile, Session
from workers.scheduling.step_cost import CostSample, StepCost, StepLoad
from workers.scheduling.step_meter import StepMeter
from workers.scheduling.survival import SurvivalModel, conditionals_of, survivals_of

__all__ = ["BudgetController", "Choice"]

WEIGHT = 0.1  # of a new measurement of waiting and drafting
SETTLED_EVERY = 8  # steps between evaluations while nothing is about to change


@dataclass(frozen=True)
class Choice:
    """What `choose` saw and decided; `keys[i]` belongs to `snapshot.offers[i]`."""

    keys: tuple[int, ...]
    snapshot: StepSnapshot
    decision: StepDecision


class BudgetController:
    """See the module."""

    def __init__(self, settings: ModeSettings | None = None, profile: Sequence[CostSample] = ()) -> None:
        self._settings = settings or ModeSettings()
        self._meter = StepMeter(profile)
        self._modes = Modes(self._settings)
        self._survival = SurvivalModel()
        self._sessions: dict[int, Session] = {}
        self._profile = DraftProfile()  # of all requests; where a new one starts
        self._speculating = True
        self._wait_ms = 0.0
        self._draft_ms = 0.0
        self._steps = 0
        self.evaluation = Evaluation(frozenset(), 1.0)

    @property
    def cost(self) -> StepCost:
        return self._meter.cost

    @property
    def num_active(self) -> int:
        return sum(s.active for s in self._sessions.values())

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    # Requests

    def open(self, key: int, *, forced: bool, kind: str, context: int = 0) -> None:
        """A request that may speculate. It begins as the others are; the only one begins as it would pay."""
        session = Session(key, kind, forced, True, self._profile.copy())
        others = [s for s in self._sessions.values() if not s.forced]
        if not forced:
            if others:
                session.active = any(s.active for s in others) or self._modes.controlling
            else:
                session.active = self._speculating
                load = StepLoad(1, 1, context)
                session.active = key in self._evaluate([session], load).wanted
        self._sessions[key] = session

    def close(self, key: int) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._modes.forget(session)

    def active(self, key: int) -> bool:
        """Whether a proposal is wanted for the request."""
        session = self._sessions.get(key)
        return session is not None and session.active

    def hint(self, key: int, limits: TreeBudget) -> TreeBudget:
        """What will probably be verified of its next proposal."""
        return self._sessions[key].hint(limits, PROBE_BUDGET)

    # Before the step

    def grace(
        self, load: StepLoad, present: Sequence[int], due: Mapping[int, tuple[float | None, float]], max_grace_ms: float
    ) -> float:
        """How long to wait. `present`: keys whose proposals are in; `due`: of the others, mean and spread, in ms."""
        load = replace(load, drafting=True)
        keys = [key for key in (*present, *due) if key in self._sessions]
        offers = tuple(Offer(self._sessions[key].profile.expected(), self._sessions[key].forced) for key in keys)
        nodes = decide(StepSnapshot(load, float(load.requests), self.cost, 1 << 20, offers)).nodes
        tokens, pending = float(load.requests), []
        for key, offer, chosen in zip(keys, offers, nodes, strict=True):
            gain, rows = sum(offer.survivals[n] for n in chosen), len(chosen)
            if self._sessions[key].probing:  # it is to be found out what it is worth: it counts as if all were right
                gain, rows = float(PROBE_BUDGET.max_depth), PROBE_BUDGET.max_nodes
            if key in due:
                pending.append(Pending(gain, rows, *due[key]))
            else:
                tokens += gain
                load = load.with_rows(rows)
        return grace_ms(tokens, load, self.cost, pending, max_grace_ms)

    def choose(
        self, proposals: Mapping[int, Proposal], wanted: Mapping[int, TreeBudget], load: StepLoad, room: int
    ) -> Choice:
        """`wanted`: what was asked for; `load`: the step without trees; `room`: rows that are left in it."""
        for key in wanted:
            if self._sessions[key].record_arrival(key in proposals):
                self._profile.record_arrival(key in proposals)
        offers = tuple(self._offer(self._sessions[key], proposal) for key, proposal in proposals.items())
        snapshot = StepSnapshot(replace(load, drafting=True), float(load.requests), self.cost, room, offers)
        decision = decide(snapshot)
        for key, offer, nodes in zip(proposals, offers, decision.nodes, strict=True):
            self._remember(self._sessions[key], proposals[key], wanted[key], offer, nodes)
        return Choice(tuple(proposals), snapshot, decision)

    def _offer(self, session: Session, proposal: Proposal) -> Offer:
        shape = conditionals_of(proposal)
        survivals = survivals_of(self._survival, session.kind, shape, session.factor.value)
        return Offer(survivals, session.forced or session.probing > 0)

    def _remember(
        self, session: Session, proposal: Proposal, asked: TreeBudget, offer: Offer, nodes: Sequence[int]
    ) -> None:
        """Verified nodes and the best one that is not (`workers.scheduling.sessions` says why no others)."""
        chosen = set(nodes)
        best_left = max((s for n, s in enumerate(offer.survivals) if n not in chosen), default=None)
        known = sorted((offer.survivals[n] for n in nodes), reverse=True)
        if best_left is not None:
            known.append(best_left)
        tree = proposal.tree
        complete = best_left is None and len(tree) < asked.max_nodes and tree.max_depth < asked.max_depth
        for profile in (session.profile, self._profile):
            profile.record(known, complete=complete)
        if not session.probing:
            depth = max((tree.depths[n] for n in nodes), default=0)
            session.record_taken(len(nodes), depth)

    # After the step

    def learn(self, key: int, verified: Proposal, accepted: Sequence[int], num_emitted: int) -> None:
        """`accepted`: the path in `verified`; a token fewer than usual was emitted where the answer ended on it."""
        session = self._sessions.get(key)
        if session is None or not len(verified.tree):
            return
        decided = {-1, *accepted}
        if num_emitted == len(accepted) and accepted:
            decided.discard(accepted[-1])
        expected = self._survival.learn(session.kind, conditionals_of(verified), decided, set(accepted), session.factor)
        session.surprise += len(accepted) - expected

    def predicted_ms(self, load: StepLoad) -> float:
        """What a step without prompts would be expected to take now, waiting and drafting in it not included."""
        return self.cost.ms(replace(load, drafting=self.num_active > 0))

    def record_step(self, load: StepLoad, ms: float, *, wait_ms: float = 0.0, draft_ms: float = 0.0) -> None:
        """A step without prompts took `ms`, waiting and drafting in the verifier not included."""
        load = replace(load, drafting=self.num_active > 0)
        self._meter.record(load, ms)
        if load.drafting:
            self._wait_ms += WEIGHT * (wait_ms - self._wait_ms)
            self._draft_ms += WEIGHT * (draft_ms - self._draft_ms)

    def end_step(self, decoding: Sequence[int], load: StepLoad) -> None:
        """`decoding`: keys of the requests in the next step; `load`: it without trees."""
        sessions = [self._sessions[key] for key in decoding if key in self._sessions]
        if not sessions:
            return
        self._steps += 1
        settled = not any(s.votes or s.probing for s in sessions)
        if not settled or self._steps % SETTLED_EVERY == 0:
            self.evaluation = self._evaluate(sessions, load)
        self._modes.apply(sessions, self.evaluation)
        auto = [s for s in sessions if not s.forced]
        if auto and not self._modes.controlling:
            self._speculating = any(s.active and not s.probing for s in auto)

    def _evaluate(self, sessions: Sequence[Session], load: StepLoad) -> Evaluation:
        return evaluate(sessions, load, self.cost, self._wait_ms + self._draft_ms, self._settings)
