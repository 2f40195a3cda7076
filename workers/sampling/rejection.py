"""`rejection`: accept a drafted token with probability min(1, target / draft), else sample from what is left.

Sources: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", Algorithm 1; Chen et
al., "Accelerating large language model decoding with speculative sampling". Siblings drawn without replacement: Jeon
et al., "Recursive speculative decoding", and Yang et al., "Multi-candidate speculative decoding". After a refusal

    target <- norm(max(target - draft, 0)),    draft <- norm(draft without the refused token).

Exactness needs one thing of whoever builds or cuts the tree: whether a drawn child is kept in the proposal must not
depend on which token was drawn (it may depend on its elder siblings and on its path). A child without a draft
probability, or that the proposal calls certain, counts as drawn from a point mass: that is exact for any token, however
it was chosen, as long as all siblings that were drawn are tried before it (it may have been chosen because of them).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from workers.core.proposal import DraftDistribution, Proposal
from workers.sampling.base import Verdict, walk
from workers.sampling.coupled import CoupledRule
from workers.sampling.noise import uniform
from workers.sampling.request_sampler import RequestSampler

__all__ = ["Residual", "RejectionRule"]

# Streams of `uniform`; the drafter's draws live in another range (`drafting.py`).
RESIDUAL_STREAM = 1
ACCEPT_STREAM = 2  # + sibling number


class Residual:
    """What is left of target and draft at one node after some siblings were refused.

    `target_mass` (float64 [vocab]) is kept unnormalised with its total; the draft is sparse and kept normalised.
    """

    def __init__(self, target_mass: npt.NDArray[np.float64], draft: DraftDistribution | None) -> None:
        self.target_mass = target_mass  # changed in place
        self._total = float(target_mass.sum())
        listed = draft or DraftDistribution((), ())
        self._draft_index = {token: i for i, token in enumerate(listed.token_ids)}
        self._draft_tokens = np.array(listed.token_ids, dtype=np.int64)
        self._draft_probs = np.array(listed.probs, dtype=np.float64)
        self._renormalise_draft()

    def accepts(self, token: int, uniform_number: float, certain: bool = False) -> bool:
        """Whether `uniform_number` < target(token) / draft(token); `certain`: draft(token) is 1, whatever it says."""
        draft_prob = 1.0 if certain else self._draft_prob(token)
        return uniform_number * draft_prob * self._total < float(self.target_mass[token])

    def refuse(self, token: int, certain: bool = False) -> None:
        """Take the draft off the target and the token off the draft."""
        if certain or self._is_point_mass(token):
            tokens, left = np.array([token]), np.zeros(1)
        else:
            tokens = self._draft_tokens
            left = np.maximum(self.target_mass[tokens] - self._total * self._draft_probs, 0.0)
            self._draft_probs[self._draft_index[token]] = 0.0
            self._renormalise_draft()
        before = self.target_mass[tokens]
        self.target_mass[tokens] = left
        total = float(self.target_mass.sum())
        if total > 0.0:
            self._total = total
        else:  # target equals draft up to rounding, where a refusal has probability 0: keep the target
            self.target_mass[tokens] = before

    def sample(self, uniform_number: float) -> int:
        """A token from the residual target, by inversion."""
        cumulative = self.target_mass.cumsum()
        return int(cumulative.searchsorted(uniform_number * cumulative[-1], side="right"))

    def _is_point_mass(self, token: int) -> bool:
        index = self._draft_index.get(token)
        return index is None or self._draft_probs[index] == 0.0

    def _draft_prob(self, token: int) -> float:
        return 1.0 if self._is_point_mass(token) else float(self._draft_probs[self._draft_index[token]])

    def _renormalise_draft(self) -> None:
        total = self._draft_probs.sum()
        if total > 0.0:
            self._draft_probs /= total


class RejectionRule:
    """Walk the tree, trying the siblings of each accepted node in the order they were drawn."""

    residual_type = Residual  # tests put wrong ones here, to see that the statistics notice

    def verify(
        self, proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None = None
    ) -> Verdict:
        """See `Rule.verify`. At temperature 0 the accepted child is the one with the argmax."""
        if sampler.params.greedy:
            return CoupledRule().verify(proposal, logits, sampler, max_tokens)
        tree = proposal.tree

        def decide(node: int, log_probs: torch.Tensor, path: Sequence[int]) -> tuple[int, int | None]:
            position = sampler.committed_len + len(path)
            residual = self.residual_type(log_probs.exp().double().cpu().numpy(), proposal.distributions.get(node))
            for sibling, child in enumerate(tree.children.get(node, ())):
                token = tree.token_ids[child]
                certain = child in proposal.certain
                if residual.accepts(token, uniform(sampler.seed, position, ACCEPT_STREAM + sibling), certain):
                    return token, child
                residual.refuse(token, certain)
            return residual.sample(uniform(sampler.seed, position, RESIDUAL_STREAM)), None

        return walk(proposal, logits, sampler, max_tokens, decide)
