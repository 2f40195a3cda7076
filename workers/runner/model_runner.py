"""One forward pass over a ragged batch of sequence chunks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from workers.attention.forward_context import ForwardContext, SequenceChunk
from workers.attention.grouping import build_groups
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel

__all__ = ["ChunkOutput", "ModelRunner"]


@dataclass(frozen=True)
class ChunkOutput:
    """What the model says behind each token of a chunk's `logits_for`."""

    logits: torch.Tensor  # fp32 [len(logits_for), vocab]
    hidden: torch.Tensor  # [len(logits_for), hidden_size]: what the LM head saw


class ModelRunner:
    """Runs a loaded model on chunks whose K/V lives in `storage`. Not thread-safe."""

    def __init__(self, loaded: LoadedModel, storage: KvStorage) -> None:
        self.loaded = loaded
        self.storage = storage
        self._hidden = torch.empty(0)
        loaded.lm_head.register_forward_pre_hook(self._keep_hidden)

    def _keep_hidden(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._hidden = inputs[0][0]  # [rows, hidden_size]

    @torch.inference_mode()
    def forward(self, chunks: Sequence[SequenceChunk]) -> list[ChunkOutput]:
        """Store K/V of all new tokens; return what the model says behind the tokens that each chunk asks for."""
        device = self.loaded.device
        tokens = torch.tensor([[t for c in chunks for t in c.token_ids]], device=device)  # [1, total]
        positions = torch.tensor([[p for c in chunks for p in c.positions]], device=device)
        context = self._context(chunks)
        rows = self._logit_rows(chunks)
        if not rows:
            self.loaded.model.base_model(
                input_ids=tokens, position_ids=positions, use_cache=False, forward_context=context
            )
            nothing = ChunkOutput(torch.empty(0, self.loaded.vocab_size), torch.empty(0, self.loaded.hidden_size))
            return [nothing] * len(chunks)
        logits = self.loaded.model(
            input_ids=tokens,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=torch.tensor(rows, device=device),
            forward_context=context,
        ).logits[0]  # [len(rows), vocab or padded vocab]
        logits = logits[:, : self.loaded.vocab_size].float()
        sizes = [len(c.logits_for) for c in chunks]
        hidden = self._hidden
        return [ChunkOutput(*both) for both in zip(torch.split(logits, sizes), torch.split(hidden, sizes), strict=True)]

    def _context(self, chunks: Sequence[SequenceChunk]) -> ForwardContext:
        loaded = self.loaded
        return ForwardContext(
            storage=self.storage,
            slots=torch.cat([torch.from_numpy(c.slots) for c in chunks]).to(loaded.device),
            groups=build_groups(
                chunks, loaded.num_heads // loaded.num_kv_heads, self.storage.data.dtype, loaded.device
            ),
        )

    @staticmethod
    def _logit_rows(chunks: Sequence[SequenceChunk]) -> list[int]:
        rows: list[int] = []
        start = 0
        for chunk in chunks:
            rows.extend(start + row for row in chunk.logits_for)
            start += chunk.num_tokens
        return rows
