"""Everything that the verification of one request needs besides logits and proposal."""

from collections.abc import Iterable, Sequence

import torch

from workers.core.request import GenerationRequest
from workers.sampling.filters import best_token
from workers.sampling.gumbel_max import gumbel_argmax
from workers.sampling.logits import LogitsProcessor

__all__ = ["RequestSampler"]


class RequestSampler:
    """Processor, seed and committed output of one request.

    A `path` is the tokens that follow the committed output, down to the node whose logits row is looked at.
    """

    def __init__(
        self,
        request: GenerationRequest,
        vocab_size: int,
        eos_token_ids: Iterable[int],
        device: torch.device | str = "cpu",
    ) -> None:
        eos = frozenset(eos_token_ids)
        params = request.sampling
        self.params = params
        self.seed = request.seed
        self.vocab_size = vocab_size
        self.processor = LogitsProcessor(
            params,
            vocab_size=vocab_size,
            prompt_token_ids=request.prompt_token_ids,
            eos_token_ids=eos,
            device=device,
        )
        self.output_token_ids: list[int] = []
        self._prompt_len = len(request.prompt_token_ids)
        self._end_tokens = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos)
        self.commit(request.output_token_ids)

    @property
    def committed_len(self) -> int:
        """Number of committed tokens, prompt included: the position of the next token."""
        return self._prompt_len + len(self.output_token_ids)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Extend the committed output."""
        self.output_token_ids.extend(token_ids)
        self.processor.commit(token_ids)

    def ends(self, token_id: int) -> bool:
        """Whether the answer is over once `token_id` is emitted (`min_tokens` keeps such tokens from being sampled)."""
        return token_id in self._end_tokens

    def log_probs(self, logits: torch.Tensor, path: Sequence[int]) -> torch.Tensor:
        """Log target probabilities after `path`, from its raw logits. float32 [vocab]; not normalised if greedy."""
        return self.processor.process_path(logits, path)

    def coupled_token(self, log_probs: torch.Tensor, path: Sequence[int]) -> int:
        """Gumbel-max: an exact sample of the target, fixed by (seed, position) alone; plain argmax when greedy."""
        if self.params.greedy:
            return best_token(log_probs)
        return gumbel_argmax(log_probs, self.seed, self.committed_len + len(path), few=self.processor.filters)
