"""One forward pass over a ragged batch of sequence chunks."""

from collections.abc import Sequence

import torch

from workers.attention.forward_context import ForwardContext, SequenceChunk
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel

__all__ = ["ModelRunner"]


class ModelRunner:
    """Runs a loaded model on chunks whose K/V lives in `storage`. Not thread-safe."""

    def __init__(self, loaded: LoadedModel, storage: KvStorage) -> None:
        self.loaded = loaded
        self.storage = storage

    @torch.inference_mode()
    def forward(self, chunks: Sequence[SequenceChunk]) -> list[torch.Tensor]:
        """Store K/V of all new tokens; return fp32 logits [len(logits_for), vocab] for each chunk."""
        device = self.loaded.device
        tokens = torch.tensor([[t for c in chunks for t in c.token_ids]], device=device)  # [1, total]
        positions = torch.tensor([[p for c in chunks for p in c.positions]], device=device)
        context = self._context(chunks)
        rows = self._logit_rows(chunks)
        if not rows:
            self.loaded.model.base_model(
                input_ids=tokens, position_ids=positions, use_cache=False, forward_context=context
            )
            return [torch.empty(0, self.loaded.vocab_size)] * len(chunks)
        logits = self.loaded.model(
            input_ids=tokens,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=torch.tensor(rows, device=device),
            forward_context=context,
        ).logits[0]  # [len(rows), vocab or padded vocab]
        logits = logits[:, : self.loaded.vocab_size].float()
        return list(logits.split([len(c.logits_for) for c in chunks]))

    def _context(self, chunks: Sequence[SequenceChunk]) -> ForwardContext:
        device = self.loaded.device
        as_tensor = torch.from_numpy
        return ForwardContext(
            storage=self.storage,
            chunks=chunks,
            slots=torch.cat([as_tensor(c.slots) for c in chunks]).to(device),
            key_slots=[torch.cat([as_tensor(c.context_slots), as_tensor(c.window_slots)]).to(device) for c in chunks],
            biases=[self._bias(c) for c in chunks],
        )

    def _bias(self, chunk: SequenceChunk) -> torch.Tensor | None:
        """Additive mask [group * n, c + w], 0 or -inf: a block of n rows for each query head of a K/V group."""
        if chunk.mask is None:
            return None
        visible = len(chunk.context_slots)
        bias = torch.zeros(chunk.num_tokens, visible + len(chunk.window_slots), dtype=self.storage.data.dtype)
        bias[:, visible:].masked_fill_(~chunk.mask, float("-inf"))
        return bias.repeat(self.loaded.num_heads // self.loaded.num_kv_heads, 1).to(self.loaded.device)

    @staticmethod
    def _logit_rows(chunks: Sequence[SequenceChunk]) -> list[int]:
        rows: list[int] = []
        start = 0
        for chunk in chunks:
            rows.extend(start + row for row in chunk.logits_for)
            start += chunk.num_tokens
        return rows
