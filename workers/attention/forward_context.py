"""What one forward pass needs to know besides token ids: where K/V lives and who sees whom."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from workers.kvcache.storage import KvStorage

__all__ = ["AttentionGroup", "ForwardContext", "SequenceChunk", "Slots", "causal_mask"]

Slots = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SequenceChunk:
    """New tokens of one sequence in this step, and what they attend to.

    Every new token sees all of `context_slots`; of `window_slots` it sees what its row of `mask` allows. The K/V
    of the new tokens are written to `slots` first, so that `window_slots` normally contains them (and, in a
    drafter, tree nodes of earlier steps). `logits_for` names the new tokens whose logits are wanted.
    """

    token_ids: Sequence[int]  # [n]
    positions: Sequence[int]  # [n]
    slots: Slots  # [n]
    context_slots: Slots  # [c]
    window_slots: Slots  # [w]
    mask: torch.Tensor | None  # bool [n, w], True = visible; None = all visible
    logits_for: Sequence[int]  # indices into the new tokens

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_keys(self) -> int:
        return len(self.context_slots) + len(self.window_slots)

    def select(self, rows: Sequence[int]) -> "SequenceChunk":
        """Some of the new tokens; the K/V of the others is in its slots already. No logits are wanted."""
        return replace(
            self,
            token_ids=[self.token_ids[row] for row in rows],
            positions=[self.positions[row] for row in rows],
            slots=self.slots[list(rows)],
            mask=None if self.mask is None else self.mask[list(rows)],
            logits_for=(),
        )


@dataclass(frozen=True)
class AttentionGroup:
    """Chunks with equally many new tokens, attended in one call; shorter contexts are padded behind a mask."""

    size: int  # chunks in it: b
    num_tokens: int  # new tokens of each: n
    rows: torch.Tensor | None  # int64 [b * n], their place among the step's new tokens; None = all, in order
    key_slots: torch.Tensor  # int64 [b * k]
    bias: torch.Tensor | None  # [b, 1, query heads per K/V head * n, k], 0 or -inf; None = everything is visible


@dataclass(frozen=True)
class ForwardContext:
    """Passed through the model's keyword arguments to the attention function."""

    storage: KvStorage
    slots: torch.Tensor  # int64 [total new tokens]
    groups: Sequence[AttentionGroup]


def causal_mask(num_tokens: int) -> torch.Tensor | None:
    """Mask of a chain: token i sees tokens 0..i. None for a single token."""
    if num_tokens == 1:
        return None
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
