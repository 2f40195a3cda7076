"""The `Proposer` interface: how the verifier's engine asks for token trees.

The engine calls it from its own thread, in this order for each request:
`open` at admission, then per step `wait` (only when waiting pays), `collect`,
`commit`, and `close` once. `flush` ends a step. No method may block for longer
than `wait` is told to, and none may raise because a drafter misbehaves: a
missing proposal means plain decoding, never a lost request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.statistics import GenerationStats
from workers.kvcache.block_table import BlockTable

__all__ = ["CommitUpdate", "DraftSession", "Proposer", "ReportsArrivals", "Want"]


@dataclass(frozen=True)
class DraftSession:
    """One request, as a proposer sees it.

    `key` is the engine's number for it (unique while the engine lives). `stats`
    belongs to the engine's thread: stale and invalid proposals and drafter
    changes are counted there, inside `collect`.
    """

    key: int
    request: GenerationRequest
    token_ids: Sequence[int]  # committed tokens at the time of `open`: prompt and output so far
    stats: GenerationStats


@dataclass(frozen=True)
class Want:
    """What would be useful for the next step of one request."""

    base_len: int  # number of committed tokens
    budget: TreeBudget
    blocks: BlockTable | None = None  # the request's K/V, all but the root's; for `workers.proposers.target_access`


@dataclass(frozen=True)
class CommitUpdate:
    """Tokens that one step committed, and the budget for the next one. `paused`: propose nothing for now.

    `hidden` holds the target's last hidden state that each token was chosen from.
    """

    key: int
    base_len: int  # number of committed tokens before `token_ids`
    token_ids: tuple[int, ...]
    budget: TreeBudget
    paused: bool = False
    hidden: torch.Tensor | None = None  # [len(token_ids), hidden_size]


class Proposer(Protocol):
    """Anything that proposes token trees (module docstring: order of calls)."""

    in_process: bool
    """Whether `collect` computes proposals in the verifier and costs it step time."""

    def open(self, session: DraftSession) -> None:
        """Start drafting for a request."""
        ...

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        """Return when every wanted proposal is in, or none can come any more, or after `timeout_s`."""
        ...

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        """Proposals by key that fit `wants` (same base_len, within the budget). Never blocks."""
        ...

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        """Tell what the step committed."""
        ...

    def close(self, key: int) -> None:
        """Forget a request. Unknown keys are ignored."""
        ...

    def flush(self) -> None:
        """End of a step: send what `open`, `commit` and `close` have gathered."""
        ...

    def shutdown(self) -> None:
        """Give back everything; no call follows."""
        ...


@runtime_checkable
class ReportsArrivals(Protocol):
    """A proposer whose proposals come from elsewhere, and that can say when."""

    def due(self, wants: Mapping[int, Want]) -> dict[int, tuple[float | None, float]]:
        """Of proposals that are still to come: milliseconds from now (None = not known), and their mean deviation."""
        ...
