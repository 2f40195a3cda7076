"""Decoding loops and proposals over table models."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.chi_square import p_value
from tests.fakes.table_model import TableModel
from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams
from workers.core.token_tree import ROOT, TokenTree
from workers.sampling.base import Rule
from workers.sampling.coupled import CoupledRule
from workers.sampling.drafting import sample_children
from workers.sampling.filters import top_tokens
from workers.sampling.noise import gumbel_noise
from workers.sampling.request_sampler import RequestSampler

PROMPT = (1, 2)
LIMITS = TreeBudget(8, 8, 64)

Propose = Callable[[RequestSampler, Sequence[int]], Proposal]  # (sampler, committed tokens)


def request(seed: int = 0, output: tuple[int, ...] = (), **sampling: Any) -> GenerationRequest:
    params = SamplingParams(**sampling)
    return GenerationRequest.build("r", PROMPT, params, seed=seed, limits=LIMITS, output_token_ids=output)


def generate(
    target: TableModel,
    asked: GenerationRequest,
    propose: Propose,
    rule: Rule,
    length: int,
    eos: Sequence[int] = (),
) -> tuple[int, ...]:
    """Decode until `length` tokens or an end token."""
    sampler = RequestSampler(asked, target.vocab_size, eos)
    while len(sampler.output_token_ids) < length:
        committed = (*asked.prompt_token_ids, *sampler.output_token_ids)
        proposal = propose(sampler, committed)
        logits = target.tree_logits(committed, proposal.tree)
        remaining = length - len(sampler.output_token_ids)
        verdict = rule.verify(proposal, logits, sampler, max_tokens=remaining)
        sampler.commit(verdict.token_ids)
        if sampler.ends(verdict.token_ids[-1]):
            break
    return tuple(sampler.output_token_ids)


def nothing(sampler: RequestSampler, committed: Sequence[int]) -> Proposal:
    """No draft: plain decoding."""
    return Proposal(len(committed), TokenTree.empty())


def plain(target: TableModel, asked: GenerationRequest, length: int, eos: Sequence[int] = ()) -> tuple[int, ...]:
    return generate(target, asked, nothing, CoupledRule(), length, eos)


def random_tree(rng: random.Random, vocab_size: int, max_nodes: int) -> TokenTree:
    """Any legal tree: random shape, random tokens."""
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(rng.randint(0, max_nodes)):
        parent, token = rng.randint(ROOT, node - 1), rng.randrange(vocab_size)
        if (parent, token) in zip(parents, tokens, strict=True):
            return TokenTree(tuple(tokens), tuple(parents))
        tokens.append(token)
        parents.append(parent)
    return TokenTree(tuple(tokens), tuple(parents))


def hostile(vocab_size: int, seed: int, max_nodes: int = 12) -> Propose:
    rng = random.Random(seed)
    return lambda sampler, committed: Proposal(len(committed), random_tree(rng, vocab_size, max_nodes))


Children = Callable[[Sequence[int], int], tuple[list[int], DraftDistribution | None]]


def grown(base_len: int, depth: int, children_of: Children) -> Proposal:
    """Grow a full tree of `depth` levels; `children_of(path tokens, salt of the node)`."""
    tokens: list[int] = []
    parents: list[int] = []
    distributions: dict[int, DraftDistribution] = {}
    level: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
    for _ in range(depth):
        below: list[tuple[int, tuple[int, ...]]] = []
        for node, path in level:
            children, distribution = children_of(path, node + 1)
            if distribution is not None:
                distributions[node] = distribution
            for token in children:
                below.append((len(tokens), (*path, token)))
                tokens.append(token)
                parents.append(node)
        level = below
    return Proposal(base_len, TokenTree(tuple(tokens), tuple(parents)), distributions)


def sampled(draft: TableModel, *, depth: int, width: int, truncate_to: int = 64) -> Propose:
    """A drafter under rule `rejection`."""

    def propose(sampler: RequestSampler, committed: Sequence[int]) -> Proposal:
        def children_of(path: Sequence[int], salt: int) -> tuple[list[int], DraftDistribution]:
            log_probs = sampler.log_probs(draft.logits((*committed, *path)), path)
            position = len(committed) + len(path)
            children, distribution, _ = sample_children(log_probs, width, sampler.seed, position, salt, truncate_to)
            return children, distribution

        return grown(len(committed), depth, children_of)

    return propose


def coupled(draft: TableModel, *, depth: int, width: int) -> Propose:
    """A drafter under rule `coupled`."""

    def propose(sampler: RequestSampler, committed: Sequence[int]) -> Proposal:
        def children_of(path: Sequence[int], salt: int) -> tuple[list[int], None]:
            log_probs = sampler.log_probs(draft.logits((*committed, *path)), path)
            position = len(committed) + len(path)
            noise = None if sampler.params.greedy else gumbel_noise(sampler.seed, position, draft.vocab_size)
            return top_tokens(log_probs if noise is None else log_probs + noise, width).tolist(), None

        return grown(len(committed), depth, children_of)

    return propose


def best(draft: TableModel, *, depth: int, width: int) -> Propose:
    """A deterministic drafter: the `width` most probable tokens, no distributions."""

    made: dict[tuple[int, ...], Proposal] = {}

    def propose(sampler: RequestSampler, committed: Sequence[int]) -> Proposal:
        def children_of(path: Sequence[int], salt: int) -> tuple[list[int], None]:
            return top_tokens(draft.logits((*committed, *path)), width).tolist(), None

        key = tuple(committed)
        if key not in made:
            made[key] = grown(len(committed), depth, children_of)
        return made[key]

    return propose


def first_nodes(count: int, propose: Propose) -> Propose:
    """The same proposals, cut to their first nodes as a verifier's budget does it."""
    return lambda sampler, committed: propose(sampler, committed).prefix(TreeBudget(8, 8, count))


def chi_square_p(counts: npt.NDArray[np.float64], expected_probs: npt.NDArray[np.float64]) -> float:
    """p-value of Pearson's test; cells expected fewer than five times are pooled."""
    expected = expected_probs.ravel() * counts.sum()
    rare = expected < 5
    observed = np.append(counts.ravel()[~rare], counts.ravel()[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 1e-9:
        assert observed[-1] == 0, "a sequence of probability zero was generated"
        observed, expected = observed[:-1], expected[:-1]
    return p_value(observed, expected)


def sequence_test(target: TableModel, propose: Propose, rule: Rule, *, length: int, samples: int) -> float:
    """p-value of "continuations of PROMPT under `rule` follow the exact distribution", over seeds 0..samples-1."""
    counts = np.zeros((target.vocab_size,) * length)
    for seed in range(samples):
        counts[generate(target, request(seed), propose, rule, length)] += 1
    return chi_square_p(counts, target.sequence_probs(PROMPT, length))
