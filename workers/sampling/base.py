"""What a verification rule is, and the walk down the tree that the exact rules share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from workers.core.proposal import Proposal
from workers.core.token_tree import ROOT
from workers.sampling.request_sampler import RequestSampler

__all__ = ["Decide", "Rule", "Verdict", "check_verify", "walk"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one verify step of one request.

    `token_ids` are the tokens of `accepted_nodes` (a path from the root), then normally one more: the recovered or
    bonus token. The one more is missing when the last accepted token ends the answer or uses up `max_tokens`.
    """

    accepted_nodes: tuple[int, ...]
    token_ids: tuple[int, ...]


class Rule(Protocol):
    """Decides which draft tokens are kept (speculation.md, section 2). Rules have no state."""

    def verify(
        self, proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None = None
    ) -> Verdict:
        """Verify a proposal for the sampler's committed tokens.

        `logits`: raw, [1 + num_nodes, vocab]; row 0 belongs to the root, row 1 + i to node i. Rows that the walk does
        not visit are not read. `max_tokens`: how many more the request may emit (at least 1; None = no limit). The
        sampler is not changed: the caller commits. Raises `ValueError` when shapes, lengths or limits do not fit.
        """
        ...


# (node, log target probabilities [vocab], path tokens) -> the token after the node, and the child that carries it.
Decide = Callable[[int, torch.Tensor, Sequence[int]], tuple[int, int | None]]


def walk(
    proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None, decide: Decide
) -> Verdict:
    """From the root, follow the children that `decide` accepts until it leaves the tree or the answer ends."""
    check_verify(proposal, logits, sampler, max_tokens)
    node = ROOT
    accepted: list[int] = []
    emitted: list[int] = []
    while True:
        token, child = decide(node, sampler.log_probs(logits[1 + node], emitted), emitted)
        emitted.append(token)
        if child is not None:
            accepted.append(child)
        if child is None or sampler.ends(token) or len(emitted) == max_tokens:
            return Verdict(tuple(accepted), tuple(emitted))
        node = child


def check_verify(proposal: Proposal, logits: torch.Tensor, sampler: RequestSampler, max_tokens: int | None) -> None:
    """Raise `ValueError` unless the arguments of `Rule.verify` fit together."""
    expected = (1 + len(proposal.tree), sampler.vocab_size)
    if tuple(logits.shape) != expected:
        raise ValueError(f"logits have shape {tuple(logits.shape)}, expected {expected} (root and nodes, vocabulary)")
    if proposal.base_len != sampler.committed_len:
        raise ValueError(f"proposal is for {proposal.base_len} committed tokens, there are {sampler.committed_len}")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
