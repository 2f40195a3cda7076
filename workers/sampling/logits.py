"""From the model's logits to the target distribution of one request.

The verifier and the drafter use this same class, so that both speak of the same distribution; whatever depends on
generated text is evaluated along each tree path. Order of the steps: vLLM's.
"""

import math
from collections.abc import Iterable, Sequence

import torch

from workers.core.errors import ConfigurationError, InvalidRequestError
from workers.core.request import TokenLogprob
from workers.core.sampling_params import SamplingParams
from workers.sampling.filters import keep_most_probable, top_tokens
from workers.sampling.penalties import PenaltyState

__all__ = ["LogitsProcessor", "token_logprobs"]

# Below it, division can overflow float32: shift the best logit to 0 first. The floor is still a float32.
_COLD_TEMPERATURE = 1e-4
_TEMPERATURE_FLOOR = 1e-30


class LogitsProcessor:
    """Applies one request's sampling parameters to raw logits.

    Raises `InvalidRequestError` for tokens outside the vocabulary, and when `min_tokens` would leave nothing to
    sample; `ConfigurationError` when the model's own end tokens are outside.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        vocab_size: int,
        prompt_token_ids: Sequence[int],
        eos_token_ids: Iterable[int],
        device: torch.device | str = "cpu",
    ) -> None:
        params.check_vocabulary(vocab_size)
        self.params = params
        self.vocab_size = vocab_size
        self.filters = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0  # whether tokens are dropped
        self.num_committed = 0  # output tokens told to `commit`
        end_tokens = sorted({*eos_token_ids, *params.stop_token_ids})
        if end_tokens and not 0 <= end_tokens[0] <= end_tokens[-1] < vocab_size:
            raise ConfigurationError(
                f"end-of-sequence tokens {end_tokens} must be below the vocabulary size {vocab_size}"
            )
        if params.min_tokens and len(end_tokens) >= vocab_size:
            raise InvalidRequestError(f"min_tokens: all {vocab_size} tokens of the vocabulary would end the answer")
        self._end_tokens = torch.tensor(end_tokens, dtype=torch.int64, device=device)
        self._biased_tokens = torch.tensor(list(params.logit_bias), dtype=torch.int64, device=device)
        self._biases = torch.tensor(list(params.logit_bias.values()), dtype=torch.float32, device=device)
        self._penalties = PenaltyState(params, vocab_size, prompt_token_ids, device) if params.uses_history else None

    def commit(self, token_ids: Sequence[int]) -> None:
        """Count output tokens once and for all; optional, it makes penalties cheap on long outputs."""
        self.num_committed += len(token_ids)
        if self._penalties is not None:
            self._penalties.commit(token_ids)

    def process(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> torch.Tensor:
        """Log target probabilities (natural; dropped tokens -inf) of the token after `output_token_ids`.

        `logits`: raw, float32 [vocab], left unchanged. `output_token_ids`: the whole output, tree path included; it
        must begin with what was committed. At temperature 0 the result is not normalised: its argmax is the choice.
        """
        if len(output_token_ids) < self.num_committed:
            raise ValueError(f"{len(output_token_ids)} output tokens, but {self.num_committed} are committed")
        return self.process_path(logits, output_token_ids[self.num_committed :])

    def process_path(self, logits: torch.Tensor, path_token_ids: Sequence[int]) -> torch.Tensor:
        """As `process`, given only the tokens that follow the committed output."""
        if logits.shape != (self.vocab_size,):
            raise ValueError(f"logits have shape {tuple(logits.shape)}, expected ({self.vocab_size},)")
        values = self._adjust(logits.float(), path_token_ids)
        return values if self.params.greedy else self._distribution(values)

    def _adjust(self, logits: torch.Tensor, path_token_ids: Sequence[int]) -> torch.Tensor:
        """Steps that also move the argmax: logit bias, min_tokens, penalties."""
        masks_end = self.num_committed + len(path_token_ids) < self.params.min_tokens
        if len(self._biases) or masks_end:
            logits = logits.clone()
            logits[self._biased_tokens] += self._biases
            if masks_end:
                logits[self._end_tokens] = -math.inf
        return logits if self._penalties is None else self._penalties.apply(logits, path_token_ids)

    def _distribution(self, logits: torch.Tensor) -> torch.Tensor:
        """Temperature, then filters."""
        params = self.params
        if params.temperature < _COLD_TEMPERATURE:
            logits = logits - logits.max()
        if params.temperature != 1.0:
            logits = logits / max(params.temperature, _TEMPERATURE_FLOOR)
        log_probs = logits.log_softmax(0)
        if not self.filters:
            return log_probs
        return keep_most_probable(log_probs, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p)


def token_logprobs(logits_raw: torch.Tensor, token_id: int, num_top: int) -> TokenLogprob:
    """Log probability of `token_id` and the `num_top` best tokens under the unprocessed logits [vocab]."""
    log_probs = logits_raw.float().log_softmax(0)
    if num_top == 0:
        return TokenLogprob(token_id, float(log_probs[token_id]))
    best = top_tokens(log_probs, num_top)
    top = tuple(zip(best.tolist(), log_probs[best].tolist(), strict=True))
    return TokenLogprob(token_id, float(log_probs[token_id]), top)
