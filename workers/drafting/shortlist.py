"""The few best tokens of some rows of a vocabulary, found without sorting any.

A drafter looks at several rows of a large vocabulary in every forward and wants a handful of tokens of each. On a CPU
that would cost more than all else that it does besides the model, so every row is passed over once only, and rows are
written to memory that is kept (fresh pages would cost more than the arithmetic).
"""

import torch

__all__ = ["RowBuffer", "shortlists"]

BLOCK = 128
SMALL = 4096  # below it a plain topk is as fast


class RowBuffer:
    """Memory for scores, used again for every forward. One per thread."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._data = torch.empty(0, device=device)

    def rows(self, num_rows: int, size: int) -> torch.Tensor:
        """Uninitialised float32 [num_rows, size]; valid until the next call."""
        if self._data.numel() < num_rows * size:
            self._data = torch.empty(num_rows * size, device=self._data.device)
        return self._data[: num_rows * size].view(num_rows, size)


def shortlists(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` highest of each row of `scores` [n, vocab], best first, and their tokens; both [n, count] on the CPU.

    The best k values of a row lie in the k blocks with the highest maxima: one pass finds those, and only they are
    sorted. Ties go to either token.
    """
    n, size = scores.shape
    count = min(count, size)
    num_blocks = size // BLOCK
    if size < SMALL or num_blocks <= count:
        best = scores.topk(count)
        return best.values.cpu(), best.indices.cpu()
    whole = num_blocks * BLOCK
    maxima = scores[:, :whole].reshape(n, num_blocks, BLOCK).amax(2)  # [n, num_blocks]
    blocks = maxima.topk(count).indices
    inside = torch.arange(BLOCK, device=scores.device)
    tokens = (blocks[:, :, None] * BLOCK + inside).view(n, -1)
    if whole < size:
        tail = torch.arange(whole, size, device=scores.device).expand(n, -1)
        tokens = torch.cat([tokens, tail], 1)
    best = scores.gather(1, tokens).topk(count)
    return best.values.cpu(), tokens.gather(1, best.indices).cpu()
