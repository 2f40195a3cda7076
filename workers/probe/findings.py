"""What a probe measures: nouns that go into tables, plots and JSON as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

__all__ = ["Acceptance", "Cost", "DraftCost", "Findings", "Speed", "Tree", "step_ms_at"]


@dataclass(frozen=True)
class Tree:
    """The shape that was allowed: at most `nodes` nodes, no deeper than `depth`, `width` children at a node."""

    depth: int
    width: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.depth} deep, {self.width} wide, {self.nodes} nodes"


@dataclass(frozen=True)
class Acceptance:
    """One proposer under one tree, rule and temperature, over all prompts; nothing is pre-divided."""

    proposer: str
    tree: Tree
    rule: str
    temperature: float
    output_tokens: int
    verify_steps: int
    drafted_tokens: int
    drafted_per_depth: tuple[int, ...]  # steps whose tree reached the depth
    accepted_per_depth: tuple[int, ...]  # steps that accepted a node of it

    @property
    def length(self) -> float:
        """Tokens per verify step, counting the recovered or bonus token."""
        return self.output_tokens / max(1, self.verify_steps)

    @property
    def rates(self) -> list[float]:
        """For each depth: how often a node was accepted, given that its parent was."""
        reached = (self.drafted_per_depth[:1] or (0,)) + self.accepted_per_depth
        return [after / before if before else 0.0 for before, after in pairwise(reached)]

    @property
    def nodes_per_step(self) -> float:
        return self.drafted_tokens / max(1, self.verify_steps)


@dataclass(frozen=True)
class DraftCost:
    """What a step of so many requests waits for and spends on proposals."""

    proposer: str
    tree: Tree
    requests: int
    ms: float


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a step's parts."""

    verify_ms: Mapping[int, float]  # by rows: one for each request and each node
    drafts: tuple[DraftCost, ...] = ()

    def draft_ms(self, proposer: str, tree: Tree, requests: int) -> float:
        """0 where it was not measured."""
        wanted = (proposer, tree, requests)
        return next((d.ms for d in self.drafts if (d.proposer, d.tree, d.requests) == wanted), 0.0)


@dataclass(frozen=True)
class Speed:
    """Tokens per second of all requests together, in rounds: plain, always and auto side by side in each.

    Ratios are medians over the rounds: a machine that is slow for some seconds is so for both sides.
    """

    proposer: str
    tree: Tree
    temperature: float
    concurrency: int
    off_tokens_per_s: tuple[float, ...]  # by round, as the two below
    on_tokens_per_s: tuple[float, ...]
    auto_tokens_per_s: tuple[float, ...]
    predicted: float  # speed-up that acceptance and costs promise

    @property
    def measured(self) -> float:
        """Speed-up of speculating always."""
        return _median_ratio(self.on_tokens_per_s, self.off_tokens_per_s)

    @property
    def auto(self) -> float:
        """Speed-up of letting the controller decide."""
        return _median_ratio(self.auto_tokens_per_s, self.off_tokens_per_s)


@dataclass(frozen=True)
class Findings:
    """Everything that one probe found out."""

    target: str
    prompts: int
    acceptances: tuple[Acceptance, ...]
    cost: Cost
    speeds: tuple[Speed, ...]


def _median_ratio(rates: Sequence[float], base: Sequence[float]) -> float:
    return median(rate / plain for rate, plain in zip(rates, base, strict=True))


def step_ms_at(verify_ms: Mapping[int, float], rows: float) -> float:
    """Cost of a step over `rows` rows, by linear interpolation; proportional beyond the largest that was measured."""
    points = sorted(verify_ms.items())
    if rows <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if rows <= right:
            return low + (high - low) * (rows - left) / (right - left)
    last_rows, last_ms = points[-1]
    return last_ms * rows / last_rows
