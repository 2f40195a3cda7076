"""One step of the verifier: build the ragged batch, run the target, verify, commit.

For a request with committed tokens t[0..L-1], of which the first `num_computed` have K/V, the chunk holds
t[num_computed..L-1] (the last one is the root) and, when it reaches the root, the tree's nodes:

    new tokens   t[c] … t[L-1]=root   node 0   node 1  …
    position     c      L-1           L-1+depth(node)
    slot         c      L-1           L        L+1     …      (index into the block table; the proposer may have put
                                                              nodes elsewhere: `workers.proposers.target_access`)
    sees         context and the chain before it;  a node sees the chain, its ancestors and itself
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.core.errors import InternalError, OutriderError
from workers.core.private_log import log_failure
from workers.core.proposal import Proposal
from workers.core.request import TokenLogprob
from workers.core.token_tree import ROOT, TokenTree
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.proposers.target_access import Placement, TargetDraft
from workers.runner.model_runner import ChunkOutput, ModelRunner
from workers.sampling.logits import token_logprobs
from workers.sampling.rules import Verdict, rule_for
from workers.verifier.request_state import RequestState, ScheduledRequest

__all__ = ["StepResult", "VerifyStep"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepResult:
    """What a step committed for one request that reached its root, or why it could not."""

    state: RequestState
    token_ids: tuple[int, ...]
    accepted_nodes: tuple[int, ...]  # of `proposal`, a path from the root
    proposal: Proposal  # what was verified
    logprobs: tuple[TokenLogprob, ...]
    hidden: torch.Tensor | None = None  # [tokens, hidden_size]: the state that each token was chosen from
    error: OutriderError | None = None


class VerifyStep:
    """Runs scheduled requests through the target model and commits what the verification rule lets through."""

    def __init__(
        self,
        runner: ModelRunner,
        kv_cache: KvCacheManager,
        storage: KvStorage,
        drafts: dict[int, TargetDraft] | None = None,
    ) -> None:
        self._runner = runner
        self._kv_cache = kv_cache
        self._storage = storage
        self._drafts = {} if drafts is None else drafts

    @property
    def kv_memory_bytes(self) -> int:
        return self._storage.num_bytes

    def run(self, scheduled: Sequence[ScheduledRequest]) -> list[StepResult]:
        """Forward, verify and commit; requests in the middle of their prefill have no result."""
        placements = [self._placement(item) for item in scheduled]
        chunks = [_chunk(item, placement) for item, placement in zip(scheduled, placements, strict=True)]
        outputs = self._runner.forward(chunks, [placement.early for placement in placements])
        self._drafts.clear()
        results: list[StepResult] = []
        for item, placement, output in zip(scheduled, placements, outputs, strict=True):
            if item.num_tokens < item.state.num_uncomputed:
                self._advance(item.state, item.state.num_computed + item.num_tokens)
            else:
                results.append(self._verify_alone(item, placement, output))
        return results

    def _placement(self, item: ScheduledRequest) -> Placement:
        """Nodes stand behind the root in their order, unless drafting has put them elsewhere."""
        state, draft = item.state, self._drafts.get(item.state.key)
        if draft is not None and state.num_uncomputed == 1:
            tree = item.proposal.tree if item.proposal else TokenTree.empty()
            placement = draft.placement(state.blocks, len(state.tokens), tree)
            if placement is not None:
                return placement
        return Placement(tuple(range(item.num_nodes)))

    def _verify_alone(self, item: ScheduledRequest, placement: Placement, output: ChunkOutput) -> StepResult:
        """Whatever goes wrong with one request's numbers ends that request and no other."""
        try:
            return self._verify(item, placement, output)
        except Exception as error:  # noqa: BLE001  # as above
            log_failure(logger, f"request {item.state.request.request_id} failed", error)
            failure = (
                error if isinstance(error, OutriderError) else InternalError("this request failed in the verifier")
            )
            return StepResult(item.state, (), (), Proposal(0, TokenTree.empty()), (), error=failure)

    def _verify(self, item: ScheduledRequest, placement: Placement, output: ChunkOutput) -> StepResult:
        """`output`: the root's row, then the nodes'."""
        state, logits = item.state, output.logits
        proposal = item.proposal or Proposal(len(state.tokens), TokenTree.empty())
        rule = rule_for(state.request.rule)
        if bool(logits[0].isnan().any()):
            raise InternalError("the target model's logits are not numbers")
        verdict = rule.verify(proposal, logits, state.sampler, max_tokens=state.remaining_tokens)
        rows = [0, *(1 + node for node in verdict.accepted_nodes)][: len(verdict.token_ids)]  # row behind each token
        logprobs = self._logprobs(state, verdict, logits, rows)
        self._commit(state, verdict, placement)
        hidden = output.hidden[rows]
        return StepResult(state, verdict.token_ids, verdict.accepted_nodes, proposal, logprobs, hidden)

    def _commit(self, state: RequestState, verdict: Verdict, placement: Placement) -> None:
        """Compact the accepted path's K/V behind the root, append the tokens, give back the other nodes' slots."""
        first = len(state.tokens)
        places = np.array([placement.offsets[node] for node in verdict.accepted_nodes], dtype=np.int64)
        targets = np.arange(len(places))
        moved = places != targets
        if moved.any():
            slots = state.blocks.slots
            device = self._storage.data.device
            self._storage.move(
                torch.from_numpy(slots[first + places[moved]]).to(device),
                torch.from_numpy(slots[first + targets[moved]]).to(device),
            )
        state.tokens.extend(verdict.token_ids)
        state.sampler.commit(verdict.token_ids)
        # The last emitted token is the new root: it has no K/V, even where the walk ended on an accepted node.
        self._advance(state, min(first + len(places), len(state.tokens) - 1))

    def _advance(self, state: RequestState, num_computed: int) -> None:
        state.num_computed = num_computed
        self._kv_cache.commit(state.blocks, state.tokens, num_computed)
        self._kv_cache.trim(state.blocks, num_computed)

    def _logprobs(
        self, state: RequestState, verdict: Verdict, logits: torch.Tensor, rows: Sequence[int]
    ) -> tuple[TokenLogprob, ...]:
        top = state.request.sampling.logprobs
        if top is None:
            return ()
        return tuple(
            token_logprobs(logits[row], token, top) for row, token in zip(rows, verdict.token_ids, strict=True)
        )


def _chunk(item: ScheduledRequest, placement: Placement) -> SequenceChunk:
    state = item.state
    start, end = state.num_computed, state.num_computed + item.num_tokens
    slots = state.blocks.slots
    tree = item.proposal.tree if item.proposal else TokenTree.empty()
    reaches_root = item.num_tokens == state.num_uncomputed
    window = slots[[*range(start, end), *(end + offset for offset in placement.offsets)]]
    return SequenceChunk(
        token_ids=[*state.tokens[start:end], *tree.token_ids],
        positions=[*range(start, end), *(end - 1 + depth for depth in tree.depths)],
        slots=window,
        context_slots=slots[:start],
        window_slots=window,
        mask=_mask(item.num_tokens, tree),
        logits_for=range(item.num_tokens - 1, item.num_tokens + len(tree)) if reaches_root else (),
    )


def _mask(num_chain: int, tree: TokenTree) -> torch.Tensor | None:
    """bool [num_chain + nodes, same]: a causal chain followed by nodes that see the chain and their ancestors."""
    if not len(tree):
        return causal_mask(num_chain)
    size = num_chain + len(tree)
    mask = np.zeros((size, size), dtype=np.bool_)
    mask[:num_chain, :num_chain] = np.tri(num_chain, dtype=np.bool_)
    for node, parent in enumerate(tree.parent_indices):
        row = num_chain + node
        mask[row] = mask[num_chain - 1 if parent == ROOT else num_chain + parent]
        mask[row, row] = True
    return torch.from_numpy(mask)
