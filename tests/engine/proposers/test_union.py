"""Two trees in one: within the budget, nothing of the kept part lost, and exact under every rule."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.chi_square import p_value
from tests.fakes.table_model import TableModel
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.core.token_tree import ROOT, TokenTree
from workers.proposers.union import unite
from workers.sampling.drafting import sample_children
from workers.sampling.rejection import RejectionRule
from workers.sampling.request_sampler import RequestSampler

Path = tuple[int, ...]


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 10, vocab: int = 4) -> TokenTree:
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(draw(st.integers(0, max_nodes))):
        parent = draw(st.integers(ROOT, node - 1))
        token = draw(st.integers(0, vocab - 1))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
        else:
            break
    return TokenTree(tuple(tokens), tuple(parents))


def paths(tree: TokenTree) -> list[Path]:
    return [tuple(tree.token_ids[n] for n in tree.path(node)) for node in range(len(tree))]


@given(trees(), trees(max_nodes=5), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_a_union_keeps_both_within_the_budget(
    tree: TokenTree, lookup: TokenTree, max_nodes: int, max_width: int, drawn: bool, with_hints: bool
) -> None:
    budget = TreeBudget(12, max_width, max_nodes)
    lookup = lookup.prefix(max_nodes // 2, 12)
    hints = tuple(-0.3 * depth - 0.01 * node for node, depth in enumerate(tree.depths)) if with_hints else ()
    first = Proposal(7, tree, {}, hints).prefix(budget)
    union = unite(first, lookup, budget, drawn=drawn)
    checked = TokenTree.checked(union.tree.token_ids, union.tree.parent_indices, vocab_size=4, max_nodes=max_nodes)
    own, other, both = paths(first.tree), paths(lookup), paths(checked)
    assert set(both) <= {*own, *other}
    assert len(both) >= min(max_nodes - len(lookup), len(own))
    kept = [path for path in own if path in both]
    assert set(kept) == set(own[: len(kept)]), "a beginning of the first proposal"
    assert union.base_len == 7
    assert len(union.hints) == (len(both) if first.hints and kept else 0)
    widest = max(map(len, first.tree.children.values()), default=0)
    assert all(len(nodes) <= max(max_width, widest) for nodes in checked.children.values())
    if drawn:
        for siblings in checked.children.values():
            drawn_ones = [n for n in siblings if n not in union.certain]
            assert list(siblings[: len(drawn_ones)]) == drawn_ones, "draws are tried first"
            order = [own.index(both[n]) for n in drawn_ones]
            assert order == sorted(order), "and in the order they were drawn"


def test_room_that_lookup_does_not_need_is_the_others() -> None:
    first = Proposal(3, TokenTree((1, 2, 3, 4), (-1, 0, 1, 2)), {}, (-0.1, -0.2, -0.3, -0.4))
    same = unite(first, TokenTree.chain((1, 2)), TreeBudget(4, 1, 4), drawn=False)
    assert paths(same.tree) == paths(first.tree)
    tight = unite(first, TokenTree.chain((9, 8)), TreeBudget(4, 2, 4), drawn=False)
    assert set(paths(tight.tree)) == {(1,), (1, 2), (9,), (9, 8)}
    longer = unite(first, TokenTree.chain((1, 2, 3, 4, 5)), TreeBudget(5, 1, 9), drawn=False)
    assert paths(longer.tree)[-1] == (1, 2, 3, 4, 5)


VOCAB = 5
PROMPT = (1, 2)
TARGET = TableModel.random(VOCAB, 1, scale=1.0)
DRAFT = TARGET.perturbed(2, 1.5)
FAILURE_PROBABILITY = 1e-4
SAMPLES = 1500


def drafted(seed: int) -> Proposal:
    """Two children of the root and two of the first of them, drawn without replacement."""
    nodes, parents = [], []
    distributions = {}
    parent, path = ROOT, PROMPT
    for _ in range(2):
        log_probs = DRAFT.logits(path).log_softmax(0)
        drawn, distributions[parent], _ = sample_children(log_probs, 2, seed, len(path), len(nodes))
        nodes += drawn
        parents += [parent, parent]
        parent, path = len(nodes) - 2, (*path, drawn[0])
    return Proposal(len(PROMPT), TokenTree(tuple(nodes), tuple(parents)), distributions, (-0.5, -1.0, -1.1, -1.6))


def emitted(seed: int, proposal: Proposal) -> Path:
    sampling = SamplingParams(ignore_eos=True)
    rule = VerificationRule.REJECTION
    request = GenerationRequest("r", PROMPT, sampling, seed, rule, SpeculationMode.ON, TreeBudget(4, 4, 8))
    logits = TARGET.tree_logits(PROMPT, proposal.tree)
    return RejectionRule().verify(proposal, logits, RequestSampler(request, VOCAB, ())).token_ids


def p_of(counts: Counter[int], probs: torch.Tensor) -> float:
    return p_value([counts[token] for token in range(len(probs))], counts.total() * probs.double())


@pytest.mark.parametrize("budget", [TreeBudget(4, 4, 8), TreeBudget(4, 3, 4)], ids=str)
def test_rejection_stays_exact(budget: TreeBudget) -> None:
    """First and second token against the target, with a lookup that often meets the draws and often does not."""
    lookup = TokenTree((0, 3, 1), (-1, -1, 0))
    firsts, seconds = Counter[int](), {t: Counter[int]() for t in range(VOCAB)}
    both = 0
    for seed in range(SAMPLES):
        union = unite(drafted(seed), lookup, budget, drawn=True)
        both += len(union.certain) > 0
        tokens = emitted(seed, union)
        firsts[tokens[0]] += 1
        if len(tokens) > 1:
            seconds[tokens[0]][tokens[1]] += 1
    assert both > SAMPLES / 3
    assert p_of(firsts, TARGET.logits(PROMPT).softmax(0)) > FAILURE_PROBABILITY
    for token, counts in seconds.items():
        if counts.total() >= 100:
            assert p_of(counts, TARGET.logits((*PROMPT, token)).softmax(0)) > FAILURE_PROBABILITY


def test_the_test_would_notice_lookups_that_count_as_draws() -> None:
    """The control: without `certain`, a looked-up token is accepted as if it had been drawn."""
    flat = torch.zeros(1, VOCAB)
    draft = torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]).log()
    request = GenerationRequest(
        "r", PROMPT, SamplingParams(), 0, VerificationRule.REJECTION, SpeculationMode.ON, TreeBudget(1, 2, 2)
    )
    counts = {True: Counter[int](), False: Counter[int]()}
    for seed in range(SAMPLES // 3):
        [token], distribution, _ = sample_children(draft, 1, seed, len(PROMPT), 0)
        first = Proposal(len(PROMPT), TokenTree.chain((token,)), {ROOT: distribution})
        union = unite(first, TokenTree.chain((1,)), TreeBudget(1, 2, 2), drawn=True)
        for honest, proposal in ((True, union), (False, replace(union, certain=frozenset()))):
            sampler = RequestSampler(replace(request, seed=seed), VOCAB, ())
            rows = flat.expand(1 + len(proposal.tree), -1)
            counts[honest][RejectionRule().verify(proposal, rows, sampler).token_ids[0]] += 1
    assert p_of(counts[True], flat[0].softmax(0)) > FAILURE_PROBABILITY
    assert p_of(counts[False], flat[0].softmax(0)) < FAILURE_PROBABILITY**2
