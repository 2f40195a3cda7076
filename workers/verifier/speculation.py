"""Between the engine, the budget controller and the proposer: who is asked, what is verified, what is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from workers.core.proposal import Proposal
from workers.core.sampling_params import SpeculationMode
from workers.proposers.base import CommitUpdate, DraftSession, Proposer, ReportsArrivals, Want
from workers.scheduling.controller import BudgetController, Choice
from workers.scheduling.step_cost import StepLoad
from workers.verifier.budget_trace import BudgetTrace
from workers.verifier.load_meter import LoadCounters
from workers.verifier.request_state import RequestState, ScheduledRequest
from workers.verifier.step import StepResult

__all__ = ["Committed", "Speculation"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class Committed:
    """What a step made final for a request that goes on."""

    state: RequestState
    base_len: int  # number of committed tokens before
    token_ids: tuple[int, ...]
    hidden: torch.Tensor | None


class Speculation:
    """All of it runs in the engine's thread."""

    def __init__(
        self,
        proposer: Proposer,
        controller: BudgetController,
        *,
        max_grace_ms: float,
        max_tokens_per_step: int,
        clock: Clock,
        trace: BudgetTrace | None = None,
    ) -> None:
        self._proposer = proposer
        self._arrivals = proposer if isinstance(proposer, ReportsArrivals) else None
        self._controller = controller
        self._max_grace_ms = max_grace_ms
        self._max_tokens = max_tokens_per_step
        self._clock = clock
        self._trace = trace
        self.load = LoadCounters()  # the engine puts its own here
        self._known: set[int] = set()  # keys that the controller has
        self._wait_ms = 0.0
        self._draft_ms = 0.0
        self._choice: Choice | None = None

    @property
    def num_active(self) -> int:
        return self._controller.num_active

    # Requests

    def admit(self, state: RequestState) -> None:
        """A request got its blocks; its drafter may read the prompt beside the verifier."""
        if state.key in self._known or not state.speculates or state.request.budget.max_nodes == 0:
            return
        request = state.request
        kind = "greedy" if request.sampling.greedy else request.rule.value
        forced = request.mode is SpeculationMode.ON
        self._controller.open(state.key, forced=forced, kind=kind, context=len(state.tokens))
        self._known.add(state.key)

    def forget(self, state: RequestState) -> None:
        self._controller.close(state.key)
        self._known.discard(state.key)
        if state.drafting:
            self._proposer.close(state.key)

    def flush(self) -> None:
        self._proposer.flush()

    def close(self) -> None:
        """End of the engine's thread."""
        if self._trace is not None:
            self._trace.close()

    # Before the step

    def gather(self, running: Sequence[RequestState]) -> dict[int, Proposal]:
        """Open what became active, wait if that pays, and take what is to be verified."""
        self._wait_ms = self._draft_ms = 0.0
        self._choice = None
        for state in running:
            if not state.drafting and self._controller.active(state.key):
                self._proposer.open(DraftSession(state.key, state.request, tuple(state.tokens), state.stats))
                state.drafting = True
        self._proposer.flush()
        decoding = [s for s in running if s.num_uncomputed == 1]
        wants = {s.key: want for s in decoding if (want := self._want(s)) is not None}
        if not wants:
            return {}
        load = self._load(running, decoding)
        self._wait(decoding, wants, load)
        started = self._clock()
        proposals = self._proposer.collect(wants)
        if self._proposer.in_process:
            self._draft_ms = (self._clock() - started) * 1e3
        budgets = {key: want.budget for key, want in wants.items()}
        self.load.demanded_nodes += sum(budget.max_nodes for budget in budgets.values())
        self.load.delivered_nodes += sum(len(proposal.tree) for proposal in proposals.values())
        # Trees that the client insists on may push roots of later requests into the next step; others may not.
        forced = any(s.request.mode is SpeculationMode.ON for s in decoding)
        room = self._max_tokens - (1 if forced else len(decoding))
        self._choice = choice = self._controller.choose(proposals, budgets, load, room)
        chosen = zip(choice.keys, choice.decision.nodes, strict=True)
        return {key: proposals[key].select(nodes) for key, nodes in chosen if nodes}

    def _want(self, state: RequestState) -> Want | None:
        limits = state.budget()
        if not state.drafting or not limits.max_nodes or not self._controller.active(state.key):
            return None
        return Want(len(state.tokens), self._controller.hint(state.key, limits), state.table)

    def _load(self, running: Sequence[RequestState], decoding: Sequence[RequestState]) -> StepLoad:
        """The step without trees, prompts included."""
        prompts = sum(s.num_uncomputed for s in running if s.num_uncomputed > 1)
        rows = min(len(decoding) + prompts, max(self._max_tokens, len(decoding)))
        return StepLoad(rows, len(decoding), sum(s.num_computed for s in running))

    def _wait(self, decoding: Sequence[RequestState], wants: Mapping[int, Want], load: StepLoad) -> None:
        if self._proposer.in_process:
            return
        started = self._clock()
        forced = {s.key: wants[s.key] for s in decoding if s.key in wants and s.request.mode is SpeculationMode.ON}
        if forced and self._max_grace_ms > 0:
            self._proposer.wait(forced, self._max_grace_ms / 1e3)
        if self._arrivals is not None and len(forced) < len(wants):
            due = self._arrivals.due(wants)
            grace = self._controller.grace(load, [key for key in wants if key not in due], due, self._max_grace_ms)
            if grace > 0:
                self._proposer.wait({key: wants[key] for key in due}, grace / 1e3)
        self._wait_ms = (self._clock() - started) * 1e3

    # After the step

    def record(self, scheduled: Sequence[ScheduledRequest], results: Sequence[StepResult], cycle_ms: float) -> None:
        """Learn from a step; `cycle_ms`: since the end of the one before. Call it before tokens are taken in."""
        for result in results:
            self._controller.learn(result.state.key, result.proposal, result.accepted_nodes, len(result.token_ids))
        ms = cycle_ms - self._wait_ms - self._draft_ms
        self.load.wait_ms += self._wait_ms
        self.load.draft_ms += self._draft_ms
        if all(item.num_tokens == 1 for item in scheduled):
            load = StepLoad(
                sum(1 + item.num_nodes for item in scheduled),
                len(scheduled),
                sum(len(r.state.tokens) - len(r.token_ids) for r in results),
            )
            self.load.costed_steps += 1
            self.load.predicted_ms += self._controller.predicted_ms(load)
            self.load.measured_ms += ms
            self._controller.record_step(load, ms, wait_ms=self._wait_ms, draft_ms=self._draft_ms)
        if self._trace is not None:
            emitted = sum(len(result.token_ids) for result in results)
            self._trace.write(self._controller, self._choice, ms, self._wait_ms, self._draft_ms, emitted)

    def tell(self, committed: Sequence[Committed], running: Sequence[RequestState]) -> None:
        """Decide who is asked next, and tell the proposer what was committed."""
        decoding = [s for s in running if s.num_uncomputed == 1]
        if self._known:
            self._controller.end_step([s.key for s in decoding], self._load(decoding, decoding))
        self._proposer.commit([self._update(c) for c in committed if c.state.drafting])

    def _update(self, committed: Committed) -> CommitUpdate:
        state = committed.state
        paused = not self._controller.active(state.key)
        budget = state.budget()
        if not paused:
            budget = self._controller.hint(state.key, budget)
        return CommitUpdate(
            state.key, committed.base_len, committed.token_ids, budget, paused=paused, hidden=committed.hidden
        )
