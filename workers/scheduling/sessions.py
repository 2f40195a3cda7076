"""What the controller remembers about one request.

Only nodes that were verified, and the best one of those that were not, leave a trace here. Their survival follows from
tokens that are decided by now; that of other nodes could depend on drawn tokens that a later step still has to decide
about, and what is remembered here decides how much later steps verify (rule `rejection`, see `allocation`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from workers.core.proposal import TreeBudget
from workers.scheduling.survival import RequestFactor

__all__ = ["DraftProfile", "Session"]

PROFILE_NODES = 24
FIRST_PROFILE = tuple(0.7**i for i in range(1, PROFILE_NODES + 1))
WEIGHT = 0.25  # of a new observation
HINT_SLACK = 1.25  # drafters are asked for this times what is verified, plus one
PATIENCE = 6  # misses in a row before the first proposal that count as nothing (the drafter reads the prompt)
DEPTH_DECAY = 0.05  # per step


@dataclass
class DraftProfile:
    """Survival of the best node, the second best, …; what a proposal is expected to be worth."""

    survivals: list[float] = field(default_factory=lambda: list(FIRST_PROFILE))
    arrival: float = 1.0  # share of wished proposals that were in when the step began

    def copy(self) -> "DraftProfile":
        return DraftProfile(list(self.survivals), self.arrival)

    def record(self, survivals: Sequence[float], *, complete: bool) -> None:
        """Best first; `complete`: there were no more, so that those behind count as zero."""
        padded = [*survivals, *([0.0] * PROFILE_NODES if complete else [])][:PROFILE_NODES]
        for i, survival in enumerate(padded):
            self.survivals[i] += WEIGHT * (survival - self.survivals[i])

    def record_arrival(self, arrived: bool) -> None:
        self.arrival += WEIGHT * (arrived - self.arrival)

    def expected(self, scale: float = 1.0) -> tuple[float, ...]:
        """Of a proposal that is in; descending."""
        bounded = accumulate(self.survivals, min)
        return tuple(bounded) if scale == 1.0 else tuple(scale * survival for survival in bounded)


@dataclass
class Session:
    """One request that may speculate."""

    key: int
    kind: str  # of hints, see `SurvivalModel`
    forced: bool  # speculation `on`: never paused, never cut
    active: bool
    profile: DraftProfile
    factor: RequestFactor = field(default_factory=RequestFactor)
    votes: int = 0  # evaluations in a row that asked for the other state
    misses: int = 0  # since it became active, before its first proposal
    arrived: bool = False  # a proposal, since it became active
    taken: float | None = None  # nodes verified per step, on average
    deepest: float = 0.0
    probing: int = 0  # steps left of a probe
    surprise: float = 0.0  # accepted nodes beyond the expected ones, since a probe began or went on

    def set_active(self, active: bool) -> None:
        self.active = active
        self.votes = self.misses = self.probing = 0
        self.arrived = False

    def record_arrival(self, arrived: bool) -> bool:
        """Count a wished proposal; False when it says nothing about the drafter yet."""
        self.arrived |= arrived
        self.misses += not arrived
        if not self.arrived and self.misses <= PATIENCE:
            return False
        self.profile.record_arrival(arrived)
        return True

    def record_taken(self, nodes: int, depth: int) -> None:
        self.taken = nodes if self.taken is None else self.taken + WEIGHT * (nodes - self.taken)
        self.deepest = max(float(depth), self.deepest - DEPTH_DECAY)

    def hint(self, limits: TreeBudget, probe: TreeBudget) -> TreeBudget:
        """What will probably be verified of the next proposal, and a little more, so that it can grow."""
        if self.forced or limits.max_nodes == 0:
            return limits
        if self.probing:
            return limits.within(probe)
        if self.taken is None:
            return limits
        nodes = math.ceil(HINT_SLACK * self.taken) + 1
        return limits.within(TreeBudget(math.ceil(self.deepest) + 1, limits.max_width, max(nodes, 2)))
