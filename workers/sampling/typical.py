"""`typical`: Medusa's entropy rule. NOT exact: it keeps what is plausible, not what the target would have drawn.

Source: Cai et al., "Medusa: simple LLM inference acceleration framework with multiple decoding heads", 3.3.1: a
candidate is accepted if target(x) > min(epsilon, delta * exp(-entropy(target))), and the longest accepted candidate
wins. Defaults are those of the Medusa code: epsilon 0.09, delta sqrt(epsilon) = 0.3.
"""

import math

import torch

from workers.core.proposal import Proposal
from workers.core.token_tree import ROOT
from workers.sampling.base import Verdict, check_verify
from workers.sampling.coupled import CoupledRule
from workers.sampling.request_sampler import RequestSampler

__all__ = ["TypicalRule"]


class TypicalRule:
    """Accept the longest path of plausible tokens (the likelier one when two are longest), then sample one token."""

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3) -> None:
        if not 0.0 < epsilon <= 1.0 or not 0.0 < delta <= 1.0:
            raise ValueError(f"epsilon and delta must be in (0, 1], not {epsilon} and {delta}")
        self._epsilon = epsilon
        self._delta = delta

    def verify(
        self, proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None = None
    ) -> Verdict:
        """See `Rule.verify`. At temperature 0 the accepted child is the one with the argmax."""
        if sampler.params.greedy:
            return CoupledRule().verify(proposal, logits, sampler, max_tokens)
        check_verify(proposal, logits, sampler, max_tokens)
        tree = proposal.tree
        path = tree.path(self._best_node(proposal, logits, sampler, max_tokens))
        tokens = tuple(tree.token_ids[node] for node in path)
        if tokens and (sampler.ends(tokens[-1]) or len(tokens) == max_tokens):
            return Verdict(path, tokens)
        last = path[-1] if path else ROOT
        final = sampler.coupled_token(sampler.log_probs(logits[1 + last], tokens), tokens)
        return Verdict(path, (*tokens, final))

    def _best_node(
        self, proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None
    ) -> int:
        """The end of the longest accepted path; ROOT when no child of the root is plausible."""
        tree = proposal.tree
        log_likelihood = {ROOT: 0.0}  # of accepted nodes that may have accepted children
        best, best_rank = ROOT, (0, 0.0)
        for node in (ROOT, *range(len(tree))):
            depth = 0 if node == ROOT else tree.depths[node]
            if node not in log_likelihood or node not in tree.children or depth == max_tokens:
                continue
            if node != ROOT and sampler.ends(tree.token_ids[node]):
                continue
            path = tuple(tree.token_ids[n] for n in tree.path(node))
            log_probs = sampler.log_probs(logits[1 + node], path)
            threshold = self._threshold(log_probs)
            for child in tree.children[node]:
                log_prob = float(log_probs[tree.token_ids[child]])
                if log_prob > threshold:
                    log_likelihood[child] = log_likelihood[node] + log_prob
                    rank = (depth + 1, log_likelihood[child])
                    if rank > best_rank:
                        best, best_rank = child, rank
        return best

    def _threshold(self, log_probs: torch.Tensor) -> float:
        """Log of min(epsilon, delta * exp(-entropy))."""
        entropy = float(torch.special.entr(log_probs.exp()).sum())
        return min(math.log(self._epsilon), math.log(self._delta) - entropy)
