"""Grouping chunks never changes what is attended to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from workers.attention.forward_context import ForwardContext, SequenceChunk, causal_mask
from workers.attention.grouping import MOST_KEYS, build_groups, partition
from workers.attention.paged import paged_attention
from workers.kvcache.storage import KvStorage

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 400)), min_size=1, max_size=30))
def test_every_chunk_is_in_one_group_with_its_like(sizes: list[tuple[int, int]]) -> None:
    groups = partition(sizes)
    assert sorted(index for group in groups for index in group) == list(range(len(sizes)))
    for group in groups:
        assert len({sizes[index][0] for index in group}) == 1
        keys = [sizes[index][1] for index in group]
        assert len(keys) * max(keys) - sum(keys) <= 0.25 * len(keys) * max(keys)
        assert group == sorted(group)
        assert len(group) == 1 or len(keys) * max(keys) <= MOST_KEYS


def test_equal_requests_share_a_group() -> None:
    assert partition([(1, 130), (1, 120), (1, 110)]) == [[0, 1, 2]]


def test_a_long_context_stays_alone() -> None:
    assert partition([(1, 100), (1, 8000), (1, 90)]) == [[1], [0, 2]]
    assert partition([(1, 6000)] * 3) == [[0], [1], [2]]
    assert [len(group) for group in partition([(1, 1000)] * 5)] == [2, 2, 1]


def _chunk(first_slot: int, context: int, tokens: int, mask: torch.Tensor | None) -> SequenceChunk:
    slots = np.arange(first_slot, first_slot + context + tokens, dtype=np.int64)
    return SequenceChunk(
        token_ids=[0] * tokens,
        positions=range(context, context + tokens),
        slots=slots[context:],
        context_slots=slots[:context],
        window_slots=slots[context:],
        mask=mask,
        logits_for=range(tokens),
    )


def _attend(chunks: list[SequenceChunk], query: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    """Attention output [tokens, heads, head_dim] over a storage that holds `kv` [slots, 2, kv_heads, head_dim]."""
    storage = KvStorage(num_layers=1, num_slots=len(kv), num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, dtype=torch.float64)
    storage.data[0] = kv
    layer = nn.Module()
    layer.layer_idx = 0  # type: ignore[assignment]
    slots = torch.from_numpy(np.concatenate([c.slots for c in chunks]))
    context = ForwardContext(
        storage, slots, build_groups(chunks, HEADS // KV_HEADS, torch.float64, torch.device("cpu"))
    )
    new = kv[slots].permute(1, 2, 0, 3)  # [2, kv_heads, tokens, head_dim]
    output, _ = paged_attention(
        layer, query[None], new[0][None], new[1][None], None, scaling=HEAD_DIM**-0.5, forward_context=context
    )
    return output[0]


TREE = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
KINDS = [(1, None), (3, causal_mask(3)), (3, TREE)]


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(1, 40)), min_size=1, max_size=6), st.integers(0, 9))
def test_a_batch_equals_its_chunks_alone(shapes: list[tuple[int, int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    chunks, first = [], 0
    for kind, context in shapes:
        tokens, mask = KINDS[kind]
        chunks.append(_chunk(first, context, tokens, mask))
        first += context + tokens
    kv = torch.randn(first, 2, KV_HEADS, HEAD_DIM, dtype=torch.float64, generator=generator)
    tokens = sum(c.num_tokens for c in chunks)
    query = torch.randn(HEADS, tokens, HEAD_DIM, dtype=torch.float64, generator=generator)
    together = _attend(chunks, query, kv)
    start = 0
    for chunk in chunks:
        end = start + chunk.num_tokens
        torch.testing.assert_close(together[start:end], _attend([chunk], query[:, start:end], kv))
        start = end


def test_padding_reads_no_other_sequence() -> None:
    """A request whose numbers are not numbers must not spoil its neighbour in the group."""
    chunks = [_chunk(0, 20, 1, None), _chunk(21, 18, 1, None)]
    kv = torch.randn(40, 2, KV_HEADS, HEAD_DIM, dtype=torch.float64)
    query = torch.randn(HEADS, 2, HEAD_DIM, dtype=torch.float64)
    good = _attend(chunks, query, kv)
    kv[:21] = float("nan")
    spoiled = _attend(chunks, query, kv)
    assert spoiled[0].isnan().all()
    torch.testing.assert_close(spoiled[1], good[1])


@pytest.mark.parametrize("tokens", [1, 3])
def test_one_chunk_needs_no_rows(tokens: int) -> None:
    (group,) = build_groups([_chunk(0, 5, tokens, causal_mask(tokens))], 3, torch.float32, torch.device("cpu"))
    assert group.rows is None
    assert (group.bias is None) == (tokens == 1)
