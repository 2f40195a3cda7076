"""A language model that is a table: every probability is known, so that statistics can be checked exactly."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from workers.core.token_tree import TokenTree

__all__ = ["TableModel"]


class TableModel:
    """The next token depends on the last `order` tokens only (missing ones count as token 0).

    `table`: logits, float32 [vocab] * (order + 1); the last axis is the next token.
    """

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.vocab_size = table.shape[-1]
        self.order = table.dim() - 1

    @staticmethod
    def random(vocab_size: int, seed: int, *, order: int = 2, scale: float = 1.5) -> "TableModel":
        """Normal logits with standard deviation `scale`."""
        generator = torch.Generator().manual_seed(seed)
        return TableModel(torch.randn((vocab_size,) * (order + 1), generator=generator) * scale)

    def perturbed(self, seed: int, scale: float) -> "TableModel":
        """A draft model: this one with normal noise of standard deviation `scale` on its logits."""
        generator = torch.Generator().manual_seed(seed)
        return TableModel(self.table + torch.randn(self.table.shape, generator=generator) * scale)

    def logits(self, context: Sequence[int]) -> torch.Tensor:
        """Raw logits of the token after `context`. float32 [vocab]."""
        padded = (0,) * self.order + tuple(context)
        return self.table[padded[len(padded) - self.order :]]

    def tree_logits(self, context: Sequence[int], tree: TokenTree) -> torch.Tensor:
        """Raw logits of the root (the end of `context`) and of every node. float32 [1 + num_nodes, vocab]."""
        rows = [self.logits(context)]
        for node in range(len(tree)):
            rows.append(self.logits((*context, *(tree.token_ids[n] for n in tree.path(node)))))
        return torch.stack(rows)

    def greedy(self, context: Sequence[int], length: int) -> tuple[int, ...]:
        """What plain greedy decoding emits."""
        tokens = list(context)
        for _ in range(length):
            tokens.append(int(self.logits(tokens).argmax()))
        return tuple(tokens[len(context) :])

    def sequence_probs(self, context: Sequence[int], length: int) -> npt.NDArray[np.float64]:
        """Exact probability (temperature 1) of every continuation of `length` tokens. float64 [vocab] * length."""
        probs = np.asarray(self.logits(context).double().softmax(0))
        if length == 1:
            return probs
        rest = [self.sequence_probs((*context, token), length - 1) for token in range(self.vocab_size)]
        return np.stack([p * r for p, r in zip(probs, rest, strict=True)])
