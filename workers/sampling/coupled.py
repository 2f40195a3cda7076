"""`coupled`: exact and independent of the drafter, by noise that both sides compute for themselves.

The token at position i is argmax_v(log target_probs[v] + g(seed, i, v)), whatever was proposed: a proposal only decides
how many such tokens one step yields. Sources: Daliri, Musco, Suresh, "Coupling without communication and
drafter-invariant speculative decoding" (Gumbel-max coupling); the Gumbel-max trick itself is due to Gumbel (1954).
"""

from collections.abc import Sequence

import torch

from workers.core.proposal import Proposal
from workers.sampling.base import Verdict, walk
from workers.sampling.request_sampler import RequestSampler

__all__ = ["CoupledRule"]


class CoupledRule:
    """Accept the child that carries the target token; at temperature 0 that token is the plain argmax."""

    def verify(
        self, proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None = None
    ) -> Verdict:
        """See `Rule.verify`."""

        def decide(node: int, log_probs: torch.Tensor, path: Sequence[int]) -> tuple[int, int | None]:
            token = sampler.coupled_token(log_probs, path)
            return token, proposal.tree.child_with_token(node, token)

        return walk(proposal, logits, sampler, max_tokens, decide)
