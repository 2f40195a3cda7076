"""Repetition, presence and frequency penalties, with counts that grow as tokens are committed."""

from collections import Counter
from collections.abc import Sequence

import torch

from workers.core.errors import InvalidRequestError
from workers.core.sampling_params import SamplingParams

__all__ = ["PenaltyState"]


class PenaltyState:
    """Which tokens one request has seen. Formulas follow vLLM (and, for repetition, Keskar et al., "CTRL", 4.1).

    Repetition looks at prompt and output; presence and frequency at the output only. Tokens of a tree path are added
    for one call, without changing the state.
    """

    def __init__(
        self, params: SamplingParams, vocab_size: int, prompt_token_ids: Sequence[int], device: torch.device | str
    ) -> None:
        bad = next((t for t in prompt_token_ids if not 0 <= t < vocab_size), None)
        if bad is not None:
            raise InvalidRequestError(f"prompt token {bad} is outside the vocabulary (0 to {vocab_size - 1})")
        self._params = params
        self._device = device
        self._output_counts = Counter(dict.fromkeys(prompt_token_ids, 0))  # every seen token has an entry
        self._committed: tuple[torch.Tensor, torch.Tensor] | None = None  # `_output_counts` as tensors

    def commit(self, token_ids: Sequence[int]) -> None:
        """Count output tokens for good."""
        self._output_counts.update(token_ids)
        self._committed = None

    def apply(self, logits: torch.Tensor, path_token_ids: Sequence[int]) -> torch.Tensor:
        """Penalised copy of `logits` [vocab] for the committed output followed by `path_token_ids`."""
        if self._committed is None:
            self._committed = self._tensors(self._output_counts)
        penalised = logits.clone()
        self._penalise(logits, penalised, *self._committed)
        if path_token_ids:
            on_path = {token: self._output_counts[token] + n for token, n in Counter(path_token_ids).items()}
            self._penalise(logits, penalised, *self._tensors(on_path))
        return penalised

    def _penalise(self, logits: torch.Tensor, penalised: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor) -> None:
        """Write the values of seen tokens `ids` [n], with `counts` [n] occurrences in the output, to `penalised`."""
        params = self._params
        values = logits[ids]
        if params.repetition_penalty != 1.0:
            values = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
        values = values - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)
        penalised[ids] = values

    def _tensors(self, counts: dict[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor(list(counts), dtype=torch.int64, device=self._device)
        return ids, torch.tensor(list(counts.values()), dtype=torch.float32, device=self._device)
