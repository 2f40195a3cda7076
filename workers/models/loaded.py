"""A model that is ready to run, and what the engine must know about it."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from workers.parallel.leader import GroupLeader
from workers.text.tokenizer import Tokenizer

__all__ = ["LoadedModel"]


@dataclass(frozen=True)
class LoadedModel:
    model: PreTrainedModel  # a transformers causal LM with our attention function
    name: str
    vocab_size: int  # tokens that exist; logits of a padded tail are cut off
    num_layers: int
    num_heads: int  # of all ranks together, as all sizes here
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    context_length: int
    eos_token_ids: tuple[int, ...]
    fingerprint: str  # of weights, configuration and arithmetic
    tokenizer: Tokenizer
    dtype: str  # of the weights: float32, bfloat16 or float16
    kv_dtype: torch.dtype
    device: torch.device
    tensor_parallel_size: int = 1
    leader: GroupLeader | None = None  # of the other ranks; None without any, and on these

    @property
    def kv_heads_per_rank(self) -> int:
        return self.num_kv_heads // self.tensor_parallel_size

    def check_health(self) -> None:
        """Raise `UnavailableError` when a rank of a tensor-parallel group has been lost."""
        if self.leader is not None:
            self.leader.check_health()

    def close(self) -> None:
        """End the other ranks, if there are any; the model cannot run any more then."""
        if self.leader is not None:
            self.leader.close()

    @property
    def lm_head(self) -> torch.nn.Module:
        """From the last hidden state to logits."""
        return self.model.get_output_embeddings()  # type: ignore[no-any-return]

    @property
    def token_map(self) -> torch.Tensor | None:
        """Tokens that the LM head's outputs stand for, int64 [v], ascending; None for the whole vocabulary."""
        return getattr(self.lm_head, "vocabulary", None)

    @property
    def tokenizer_hash(self) -> str:
        return self.tokenizer.tokenizer_hash
