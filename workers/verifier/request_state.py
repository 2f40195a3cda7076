"""What the engine keeps about one request while it runs."""

from dataclasses import dataclass, field
from typing import Protocol

from workers.core.errors import OutriderError
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import FinishReason, GenerationRequest, StepOutput
from workers.core.sampling_params import SpeculationMode
from workers.core.statistics import GenerationStats
from workers.kvcache.manager import BlockTable
from workers.sampling.request_sampler import RequestSampler
from workers.scheduling.pace import Work
from workers.text.output_text import OutputText

__all__ = ["OutputSink", "RequestState"]


class OutputSink(Protocol):
    """Where a request's outputs go; called from the engine's thread, must not block."""

    def push(self, output: StepOutput) -> None: ...

    def fail(self, error: OutriderError) -> None: ...


@dataclass(eq=False)
class RequestState:
    """Mutable; owned by the engine's thread.

    Invariant: `tokens[:num_computed]` have their K/V in the first slots of `table`; at least the last token (the
    root) has none.
    """

    key: int
    request: GenerationRequest
    sink: OutputSink
    sampler: RequestSampler
    max_output_tokens: int
    arrived_at: float
    stop_text: OutputText | None  # only when there are stop strings
    tokens: list[int] = field(default_factory=list)
    table: BlockTable | None = None
    num_computed: int = 0
    stats: GenerationStats = field(default_factory=GenerationStats)
    drafting: bool = False  # a proposer knows it
    cancelled: bool = False
    can_finish: bool = False  # there is a deadline, and when it came there was, by all that was known, time enough
    admitted_at: float | None = None  # when it began to run first

    @property
    def fresh(self) -> bool:
        """Nothing has been done for it, here or elsewhere: refusing it loses no work."""
        return self.admitted_at is None and self.num_output == 0

    @property
    def work(self) -> Work:
        return Work(len(self.request.prompt_token_ids), self.max_output_tokens)

    @property
    def blocks(self) -> BlockTable:
        """Its block table; only running requests have one."""
        if self.table is None:
            raise RuntimeError(f"request {self.request.request_id} is not running and holds no blocks")
        return self.table

    @property
    def num_output(self) -> int:
        return len(self.tokens) - len(self.request.prompt_token_ids)

    @property
    def num_uncomputed(self) -> int:
        """Committed tokens without K/V: 1 while decoding, more during prefill."""
        return len(self.tokens) - self.num_computed

    @property
    def remaining_tokens(self) -> int:
        return self.max_output_tokens - self.num_output

    @property
    def speculates(self) -> bool:
        return self.request.mode is not SpeculationMode.OFF

    @property
    def deadline_at(self) -> float | None:
        ms = self.request.deadline_ms
        return None if ms is None else self.arrived_at + ms / 1e3

    def budget(self) -> TreeBudget:
        """How large a tree its next step could use: no deeper than the tokens that may still be emitted."""
        limits = self.request.budget
        depth = min(limits.max_depth, self.remaining_tokens - 1)
        return TreeBudget(depth, limits.max_width, limits.max_nodes if depth > 0 and self.speculates else 0)


@dataclass(frozen=True)
class ScheduledRequest:
    """One request's share of a step: `num_tokens` committed tokens to compute, and a tree when they reach the root."""

    state: RequestState
    num_tokens: int
    proposal: Proposal | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.proposal.tree) if self.proposal else 0


@dataclass(frozen=True)
class Finish:
    reason: FinishReason
    stop_string: str = ""
