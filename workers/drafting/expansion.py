"""From the draft model's logits at some nodes to the children that are drawn for them."""

import math
from collections.abc import Iterable, Sequence

import torch

from workers.core.draft_session import SessionOpening
from workers.core.proposal import DraftDistribution
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.drafting.shortlist import RowBuffer, shortlists
from workers.drafting.tree import Candidate, Node
from workers.sampling.drafting import sample_children
from workers.sampling.filters import keep_most_probable
from workers.sampling.logits import LogitsProcessor
from workers.sampling.noise import NoiseCache

__all__ = ["Drawn", "Expander"]

# Survival of coupled children: softmax(noisy scores / 0.7) over the best eight, 5 % left for the rest. Fitted by
# maximum likelihood to a simulated target whose log probabilities differ from the draft's by unit normal noise (its
# acceptance is that of a typical pair: 0.58 with one child, 0.89 with four). Predicted against true acceptance of the
# best child, by quartile: 0.30/0.30, 0.46/0.46, 0.65/0.66, 0.88/0.90.
_SCORED = 8
_SHARPNESS = 1.0 / 0.7
_COVERAGE = 0.95
_DRAWN_FROM = 64  # tokens in a distribution that is sent, and in the softmax of greedy survival
_FILTERED_FROM = 128  # tokens that top-k, top-p and min-p look at: a draft may be coarser than the target
_LOWEST = 1e-9
_COLD = 1e-3  # below this temperature the processor's care is needed
_NOISE_CAPACITY = 48  # positions

Drawn = tuple[list[Candidate], DraftDistribution | None]


class Expander:
    """Sampling state of one session. Raises `InvalidRequestError` when the parameters do not fit the vocabulary.

    Children are the best tokens of the noisy draft distribution (`coupled`), draws without replacement (`rejection`),
    or the most probable tokens (`typical`, and any rule at temperature 0).

    A draft with a reduced vocabulary has logits for the tokens of `token_map` only (int64 [reduced], ascending unless
    all are below `vocab_size`).
    """

    def __init__(
        self,
        opening: SessionOpening,
        *,
        vocab_size: int,
        eos_token_ids: Iterable[int],
        buffer: RowBuffer,
        token_map: torch.Tensor | None = None,
    ) -> None:
        params = opening.sampling
        eos = [t for t in eos_token_ids if t < vocab_size]
        device = buffer.rows(0, 0).device
        self._rule = opening.rule
        self._seed = opening.seed
        self._vocab_size = vocab_size
        self._greedy = params.greedy
        self._noisy = opening.rule is VerificationRule.COUPLED and not params.greedy
        self._end_tokens = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos))
        self._processor = LogitsProcessor(
            params,
            vocab_size=vocab_size,
            prompt_token_ids=opening.token_ids[: opening.prompt_tokens],
            eos_token_ids=eos,
            device=device,
        )
        self._processor.commit(opening.token_ids[opening.prompt_tokens :])
        self._token_map = None if token_map is None else token_map[: int((token_map < vocab_size).sum())]
        self._row_size = vocab_size if self._token_map is None else len(self._token_map)
        self._noise = NoiseCache(opening.seed, vocab_size, device, _NOISE_CAPACITY, self._token_map)
        self._prepared_to = len(opening.token_ids) - 1  # last position whose noise has been asked for
        self._params = params
        self._filters = not params.greedy and (params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0)
        self._scale = None if _needs_processing(params) else 1.0 if params.greedy else 1.0 / params.temperature
        self._buffer = buffer

    @property
    def same_at_equal_depth(self) -> bool:
        """Whether equal logits at equal positions give equal children, whatever the path to them is."""
        sampled = self._rule is VerificationRule.REJECTION and not self._greedy
        return self._scale is not None and not sampled

    def commit(self, token_ids: Sequence[int]) -> None:
        """Tell what the verifier has made final."""
        self._processor.commit(token_ids)

    def prepare(self, base_len: int, last_position: int) -> bool:
        """Compute the noise of one more position in advance; False when all up to `last_position` is there."""
        position = max(self._prepared_to + 1, base_len)
        if not self._noisy or position > min(last_position, base_len + _NOISE_CAPACITY - 1):
            return False
        self._noise_at(position)
        return True

    def children(self, logits: torch.Tensor, nodes: Sequence[Node], width: int) -> list[Drawn]:
        """Children of each node from its raw logits, float32 [nodes, vocab]; distributions for `rejection` only.

        [nodes, reduced] for a reduced vocabulary.
        """
        values, tokens = self._shortlists(logits, nodes, width)
        if self._token_map is not None:
            tokens = self._token_map[tokens.to(self._token_map.device)].cpu()
        if self._rule is VerificationRule.REJECTION and not self._greedy:
            return [self._sampled(*row, width) for row in zip(values, tokens, nodes, strict=True)]
        survivals = _COVERAGE * (values * _SHARPNESS).softmax(1) if self._noisy else values.softmax(1)
        possible = (values > -math.inf).sum(1).tolist()
        return [
            self._best(ids[: min(width, n)], survival)
            for ids, survival, n in zip(tokens.tolist(), survivals.tolist(), possible, strict=True)
        ]

    def _shortlists(self, logits: torch.Tensor, nodes: Sequence[Node], width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The best tokens of each row and their log probabilities (up to a constant) with noise. [nodes, some]."""
        count = max(width, _SCORED if self._noisy else _DRAWN_FROM)
        if self._scale is None or not self._filters:
            return shortlists(self._scores(logits, nodes, noisy=self._noisy), count)
        values, tokens = shortlists(self._scores(logits, nodes, noisy=False), _FILTERED_FROM)
        for row, ids, node in zip(values, tokens, nodes, strict=True):
            row.copy_(self._filtered(row))
            if self._noisy:
                row += self._noise_at(node.position + 1)[ids.to(self._noise.device)].cpu()
        best = values.topk(min(count, values.shape[1]))
        return best.values, tokens.gather(1, best.indices)

    def _filtered(self, values: torch.Tensor) -> torch.Tensor:
        params = self._params
        return keep_most_probable(values.log_softmax(0), top_k=params.top_k, top_p=params.top_p, min_p=params.min_p)

    def _scores(self, logits: torch.Tensor, nodes: Sequence[Node], *, noisy: bool) -> torch.Tensor:
        """Draft log probabilities up to a constant for each row, with noise if asked for. [nodes, row size]."""
        scores = self._buffer.rows(len(nodes), self._row_size)
        for row, raw, node in zip(scores, logits[:, : self._row_size], nodes, strict=True):
            if self._scale is None:
                values, scale = self._processed(raw, node), 1.0
            else:
                values, scale = raw, self._scale
            if noisy:
                torch.add(self._noise_at(node.position + 1), values, alpha=scale, out=row)
            else:
                torch.mul(values, scale, out=row)
        return scores

    def _processed(self, raw: torch.Tensor, node: Node) -> torch.Tensor:
        path = [n.token for n in node.path()]
        if self._token_map is None:
            return self._processor.process_path(raw, path)
        whole = torch.full((self._vocab_size,), -math.inf, device=raw.device)
        whole[self._token_map] = raw.float()
        return self._processor.process_path(whole, path)[self._token_map]

    def _noise_at(self, position: int) -> torch.Tensor:
        self._prepared_to = max(self._prepared_to, position)
        return self._noise.at(position)

    def _best(self, ids: list[int], survival: list[float]) -> Drawn:
        distribution = None
        if self._rule is VerificationRule.REJECTION:  # at temperature 0 it compares tokens only
            total = sum(survival[: len(ids)])
            distribution = DraftDistribution(tuple(ids), tuple(s / total for s in survival[: len(ids)]))
        return self._candidates(ids, survival), distribution

    def _sampled(self, values: torch.Tensor, tokens: torch.Tensor, node: Node, width: int) -> Drawn:
        """Draws from the shortlist of one node; sample_children names them by their place in it."""
        drawn, drawn_from, survival = sample_children(values, width, self._seed, node.position + 1, node.order)
        distribution = DraftDistribution(tuple(tokens[list(drawn_from.token_ids)].tolist()), drawn_from.probs)
        return self._candidates(tokens[drawn].tolist(), survival), distribution

    def _candidates(self, ids: list[int], survival: list[float]) -> list[Candidate]:
        return [
            Candidate(t, math.log(max(s, _LOWEST)), t in self._end_tokens) for t, s in zip(ids, survival, strict=False)
        ]


def _needs_processing(params: SamplingParams) -> bool:
    """Whether logits of the whole vocabulary have to be adjusted one by one."""
    moves = params.uses_history or bool(params.logit_bias) or params.min_tokens > 0
    return moves or 0.0 < params.temperature < _COLD
