"""A model runner without a model, which proves that slots, positions and masks are right.

"K/V" of a token is the token and its position. Every new token has to see exactly the path from the first committed
token to itself, in each forward, or the runner raises `AssertionError`. Its logits are a fixed random function of the
last tokens of that path, so that any engine with the same function can say what should have come out.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from workers.attention.forward_context import SequenceChunk
from workers.kvcache.storage import KvStorage
from workers.runner.model_runner import ChunkOutput

__all__ = ["PathRunner", "table_logits"]


def table_logits(
    path: Sequence[int], vocab_size: int, sharpness: float = 4.0, order: int = 2, salt: int = 0
) -> torch.Tensor:
    """Random logits of the token after `path`, a function of its last `order` tokens. float32 [vocab]."""
    rng = np.random.default_rng([salt, *path[-order:]])
    return torch.from_numpy(rng.normal(size=vocab_size).astype(np.float32) * sharpness)


class PathRunner:
    """See the module. `visits` lists the path of every new token of every forward; `batches` the number of chunks."""

    def __init__(
        self,
        num_slots: int,
        vocab_size: int,
        logits: Callable[[Sequence[int], int], torch.Tensor] = table_logits,
    ) -> None:
        self.storage = KvStorage(num_layers=1, num_slots=num_slots, num_kv_heads=1, head_dim=2, dtype=torch.float64)
        self.storage.data.fill_(-1.0)
        self.vocab_size = vocab_size
        self.visits: list[list[tuple[int, ...]]] = []
        self.batches: list[int] = []
        self._logits = logits

    def forward(self, chunks: Sequence[SequenceChunk]) -> list[ChunkOutput]:
        """Check what every token sees, and answer for `logits_for`."""
        written = [int(slot) for chunk in chunks for slot in chunk.slots]
        assert len(set(written)) == len(written), "two tokens of one forward write to one slot"
        for chunk in chunks:
            kv = torch.tensor([chunk.token_ids, chunk.positions], dtype=torch.float64).T  # [n, 2]
            self.storage.write(0, torch.from_numpy(chunk.slots), kv[:, None, None].expand(-1, 2, -1, -1))
        self.batches.append(len(chunks))
        self.visits.append([])
        return [ChunkOutput(logits, logits[:, :4]) for logits in map(self._chunk, chunks)]

    def _chunk(self, chunk: SequenceChunk) -> torch.Tensor:
        assert len(chunk.token_ids) == len(chunk.positions) == len(chunk.slots)
        if chunk.mask is not None:
            assert tuple(chunk.mask.shape) == (chunk.num_tokens, len(chunk.window_slots))
        context = self._read(chunk.context_slots)
        window = self._read(chunk.window_slots)
        paths = [self._path(chunk, row, context, window) for row in range(chunk.num_tokens)]
        self.visits[-1].extend(paths)
        wanted = [self._logits(paths[row], self.vocab_size) for row in chunk.logits_for]
        return torch.stack(wanted) if wanted else torch.empty(0, self.vocab_size)

    def _path(
        self, chunk: SequenceChunk, row: int, context: list[tuple[int, int]], window: list[tuple[int, int]]
    ) -> tuple[int, ...]:
        visible = (
            window if chunk.mask is None else [kv for kv, seen in zip(window, chunk.mask[row], strict=True) if seen]
        )
        path = sorted([*context, *visible], key=lambda kv: kv[1])
        position = chunk.positions[row]
        assert [p for _, p in path] == list(range(position + 1)), f"token at {position} sees positions {path}"
        assert path[-1][0] == chunk.token_ids[row], "the token does not see itself"
        return tuple(token for token, _ in path)

    def _read(self, slots: np.ndarray) -> list[tuple[int, int]]:
        rows = self.storage.read(0, torch.from_numpy(slots))[:, 0, 0].tolist()
        return [(int(token), int(position)) for token, position in rows]
