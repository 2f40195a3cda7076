"""From the draft model's logits at a node to the children that are drawn for it."""

import math
from collections.abc import Iterable, Sequence

import torch

from workers.core.draft_session import SessionOpening
from workers.core.proposal import DraftDistribution
from workers.core.sampling_params import VerificationRule
from workers.draft.tree import Candidate, Node
from workers.sampling.drafting import coupled_children, sample_children
from workers.sampling.logits import LogitsProcessor
from workers.sampling.noise import NoiseCache

__all__ = ["Expander", "calibrated"]

# Survival of coupled children: softmax(noisy scores / 0.7) over the best eight, 5 % left for the rest. Fitted by
# maximum likelihood to a simulated target whose log probabilities differ from the draft's by unit normal noise (its
# acceptance is that of a typical pair: 0.58 with one child, 0.89 with four). Predicted against true acceptance of the
# best child, by quartile: 0.30/0.30, 0.46/0.46, 0.65/0.66, 0.88/0.90.
_SCORED = 8
_SHARPNESS = 1.0 / 0.7
_COVERAGE = 0.95
_LOWEST = 1e-9


class Expander:
    """Sampling state of one session. Raises `InvalidRequestError` when the parameters do not fit the vocabulary."""

    def __init__(
        self,
        opening: SessionOpening,
        *,
        vocab_size: int,
        eos_token_ids: Iterable[int],
        device: torch.device | str = "cpu",
        noise_capacity: int = 32,
    ) -> None:
        params = opening.sampling
        eos = frozenset(eos_token_ids)
        self._rule = opening.rule
        self._seed = opening.seed
        self._vocab_size = vocab_size
        self._greedy = params.greedy
        self._end_tokens = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos)
        prompt = opening.token_ids[: opening.prompt_tokens]
        self._processor = LogitsProcessor(
            params,
            vocab_size=vocab_size,
            prompt_token_ids=prompt,
            eos_token_ids=[t for t in eos if t < vocab_size],
            device=device,
        )
        self._processor.commit(opening.token_ids[opening.prompt_tokens :])
        self._noise = NoiseCache(opening.seed, vocab_size, device, noise_capacity)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Tell what the verifier has made final."""
        self._processor.commit(token_ids)

    def children(
        self, logits: torch.Tensor, node: Node, width: int
    ) -> tuple[list[Candidate], DraftDistribution | None]:
        """Children of `node` from its raw logits, float32 [vocab]; the distribution under rule `rejection` only."""
        path = [n.token for n in node.path()]
        log_probs = self._processor.process_path(logits[: self._vocab_size], path)
        position = node.position + 1  # of the children
        distribution = None
        if self._rule is VerificationRule.REJECTION and not self._greedy:
            tokens, distribution, survival = sample_children(log_probs, width, self._seed, position, node.order)
        elif self._rule is VerificationRule.COUPLED and not self._greedy:
            tokens, survival = coupled_children(log_probs, self._noise.at(position), max(width, _SCORED))
            survival = calibrated(survival)
        else:
            tokens, survival = coupled_children(log_probs, None, width)
            if (
                self._rule is VerificationRule.REJECTION
            ):  # greedy: the rule wants distributions, but only compares tokens
                distribution = DraftDistribution(tuple(tokens), tuple(s / sum(survival) for s in survival))
        drawn = list(zip(tokens, survival, strict=True))[:width]
        return [Candidate(t, math.log(max(s, _LOWEST)), t in self._end_tokens) for t, s in drawn], distribution


def calibrated(survival: Sequence[float]) -> list[float]:
    """Sharpen softmax scores of the best children into the probability that each is the target's choice."""
    weights = [max(s, _LOWEST) ** _SHARPNESS for s in survival]
    total = sum(weights) / _COVERAGE
    return [w / total for w in weights]
