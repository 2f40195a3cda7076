"""One request at its remote drafter, as the engine's thread sees it."""

import math
from collections import deque
from dataclasses import dataclass, field

from outrider.v1 import draft_pb2 as pb

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.errors import ProtocolViolationError
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import VerificationRule
from workers.core.statistics import GenerationStats
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.counters import ProposerCounters
from workers.proposers.fitting import fit, reroot
from workers.rpc.convert import proposal_from_wire

__all__ = ["RemoteSession"]

REMEMBERED_COMMITS = 16


@dataclass(eq=False)
class RemoteSession:
    """Committed tokens, what the drafter knows of them, and its newest proposal."""

    key: int
    request: GenerationRequest
    stats: GenerationStats
    counters: ProposerCounters
    tokens: list[int]
    budget: TreeBudget
    largest_tree: int
    paused: bool = False
    epoch: int = 0
    address: str | None = None  # of the drafter that has the session
    drafter: tuple[str, int] | None = None  # address and incarnation of the last one that had it
    known_len: int = 0  # committed tokens that the drafter has been told
    proposal: Proposal | None = None
    proposal_used: bool = False
    answered_len: int = 0  # the longest base_len that a proposal came for
    strikes: int = 0  # waits in vain since the last one that came in time
    unanswered: int = 0  # times that the drafter was told something since it last answered,
    unanswered_since_s: float | None = None  # and the first of them
    last_timeout_s: float = 0.0
    barred_until: dict[str, float] = field(default_factory=dict)  # drafters that this request avoids
    sent_at: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_COMMITS))

    @staticmethod
    def start(session: DraftSession, counters: ProposerCounters) -> "RemoteSession":
        budget = session.request.budget
        return RemoteSession(
            session.key, session.request, session.stats, counters, list(session.token_ids), budget, budget.max_nodes
        )

    @property
    def awaiting(self) -> bool:
        """Whether the drafter owes an answer to what it was told last."""
        return self.address is not None and not self.paused and self.answered_len < self.known_len

    def bar(self, address: str, until_s: float = math.inf) -> None:
        """Do not use this drafter for this request before `until_s` (default: never again)."""
        self.barred_until[address] = until_s

    # What is told to the drafter

    def attach(self, address: str, incarnation: int) -> SessionOpening:
        """Open at a drafter with all committed tokens, under a new epoch."""
        again = self.drafter is not None
        self.stats.drafter_changes += again and self.drafter != (address, incarnation)
        self.counters.reattachments += again
        self.counters.sessions += 1
        self.epoch += 1
        self.address, self.drafter = address, (address, incarnation)
        self.known_len, self.answered_len, self.strikes = len(self.tokens), 0, 0
        self._heard()
        self.proposal = None
        self.sent_at.clear()
        return SessionOpening.of(
            self.request, session_id=self.key, token_ids=self.tokens, epoch=self.epoch, budget=self.budget
        )

    def detach(self) -> None:
        self.address = None

    def commit(self, update: CommitUpdate) -> SessionCommit | None:
        """Take in committed tokens; what to tell the drafter (nothing while a pause lasts)."""
        if update.base_len != len(self.tokens):
            raise ValueError(f"key {update.key}: commit at {update.base_len}, but {len(self.tokens)} are committed")
        was_paused, self.paused = self.paused, update.paused or update.budget.max_nodes == 0
        self.tokens.extend(update.token_ids)
        self.budget = update.budget
        self.largest_tree = max(self.largest_tree, update.budget.max_nodes)
        if self.address is None or (was_paused and self.paused):
            return None
        commit = SessionCommit(
            session_id=self.key,
            epoch=self.epoch,
            base_len=self.known_len,
            token_ids=tuple(self.tokens[self.known_len :]),
            budget=self.budget,
            paused=self.paused,
        )
        self.known_len = len(self.tokens)
        return commit

    def told_at(self, now_s: float) -> None:
        """What `attach` or `commit` gave has been sent."""
        self.sent_at.append((self.known_len, now_s))
        if self.paused:
            self._heard()  # nothing is owed
        else:
            self.unanswered += 1
            self.unanswered_since_s = now_s if self.unanswered_since_s is None else self.unanswered_since_s

    def _heard(self) -> None:
        self.unanswered, self.unanswered_since_s = 0, None

    # What comes from the drafter

    def receive(self, message: pb.Proposal, arrived_s: float, vocab_size: int) -> float | None:
        """Keep a proposal if it is of use; the seconds that the drafter took, if that is known.

        `ProtocolViolationError` when it breaks the rules.
        """
        if message.base_len > self.known_len:
            raise ProtocolViolationError(f"base_len {message.base_len}, but only {self.known_len} tokens are committed")
        proposal = proposal_from_wire(
            message,
            vocab_size=vocab_size,
            max_nodes=self.largest_tree,
            with_distributions=self.request.rule is VerificationRule.REJECTION,
        )
        self.counters.proposals += 1
        self._heard()
        took_s = next((arrived_s - sent for base_len, sent in self.sent_at if base_len == message.base_len), None)
        if took_s is not None and took_s <= self.last_timeout_s:
            self.strikes = 0  # it would have been worth waiting for
        self.answered_len = max(self.answered_len, message.base_len)
        self.counters.late += message.base_len < len(self.tokens)
        if self.proposal is None or message.base_len >= self.proposal.base_len:
            self.proposal, self.proposal_used = proposal, False
            self._catch_up()
        else:
            self._count_stale()
        return took_s

    def told(self, want: Want) -> bool:
        """Whether the drafter has been sent everything that `want` builds on."""
        return bool(self.sent_at) and self.sent_at[-1][0] >= want.base_len

    def has(self, want: Want) -> bool:
        """Whether the answer for `want` is in (be it that there is nothing to propose)."""
        if self.answered_len >= want.base_len:
            return True
        self._catch_up()
        return self.proposal is not None and not self.proposal_used and len(self.proposal.tree) > 0

    def take(self, want: Want) -> Proposal | None:
        """The proposal for `want`. What a smaller budget leaves of it is kept, in case nothing newer comes."""
        self._catch_up()
        if self.proposal is None or self.proposal.base_len != want.base_len:
            return None
        fitting = fit(self.proposal, want.budget)
        if not len(fitting.tree):
            return None
        self.counters.used += not self.proposal_used
        self.proposal_used = True
        return fitting

    def _catch_up(self) -> None:
        """Move the proposal below the tokens that were committed since; drop it if they left its tree."""
        if self.proposal is None or self.proposal.base_len == len(self.tokens):
            return
        self.proposal = reroot(self.proposal, self.tokens[self.proposal.base_len :])
        if self.proposal is None and not self.proposal_used:
            self._count_stale()

    def _count_stale(self) -> None:
        self.stats.stale_proposals += 1
        self.counters.stale += 1
