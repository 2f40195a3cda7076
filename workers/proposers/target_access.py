"""For proposers that draft with the target model itself: what they get, and what they leave for the step.

A step that verifies a draft of this kind does not compute again what drafting has computed. The proposer puts it into
`TargetAccess.drafts` in `collect`; the step of the same turn reads it and empties the book.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from workers.core.token_tree import TokenTree
from workers.kvcache.block_table import BlockTable
from workers.kvcache.manager import KvCacheManager
from workers.runner.model_runner import EarlyRows, ModelRunner

__all__ = ["DraftsWithTarget", "Placement", "TargetAccess", "TargetDraft"]


@dataclass(frozen=True)
class Placement:
    """Where the tree's nodes are, and what is computed of them.

    Node i has slot `base_len + offsets[i]` of the block table. Rows of `early` count the root as 0, node i as 1 + i.
    """

    offsets: tuple[int, ...]
    early: EarlyRows | None = None


class TargetDraft(Protocol):
    """What drafting has computed of one request."""

    def placement(self, blocks: BlockTable, base_len: int, tree: TokenTree) -> Placement | None:
        """Of a tree with any nodes, drafted or not. None when it was drafted for other tokens or other memory.

        No offset is as large as the number of nodes, unless the table has room for it already.
        """
        ...


@dataclass(frozen=True)
class TargetAccess:
    """The engine's model and memory, for use inside `Proposer.collect` only."""

    runner: ModelRunner
    kv_cache: KvCacheManager
    drafts: dict[int, TargetDraft] = field(default_factory=dict)  # by request key


@runtime_checkable
class DraftsWithTarget(Protocol):
    """A proposer (`workers.proposers.base.Proposer`) that has to be attached to the engine's model."""

    def attach(self, target: TargetAccess) -> None:
        """Called once, before any request; `ConfigurationError` when the model does not fit."""
        ...
