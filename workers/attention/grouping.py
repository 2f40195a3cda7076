"""Puts chunks together that can be attended in one call.

A call per sequence costs more than its arithmetic while contexts are short: with 8 requests of 130 tokens of context
it takes nearly three times as long as one padded call. With long contexts the gathered keys no longer fit a cache, and
their memory grows with the group, for nothing: a group has a bounded number of keys.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from workers.attention.forward_context import AttentionGroup, SequenceChunk

__all__ = ["build_groups", "partition"]

MOST_PADDING = 0.25  # of a group's keys
MOST_KEYS = 2048  # of a group, padding included; a longer context stays alone


def partition(sizes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Indices of chunks in groups, each chunk once; `sizes` are (new tokens, keys) of each chunk.

    Within a group all have the same number of new tokens, indices ascend, at most a quarter of the keys is padding, and
    there are at most `MOST_KEYS` of them.
    """
    groups: list[list[int]] = []
    tokens = longest = total = 0
    for index in sorted(range(len(sizes)), key=lambda i: (sizes[i][0], -sizes[i][1], i)):
        n, keys = sizes[index]
        padded = longest * (len(groups[-1]) + 1) if groups else 0
        fits = padded <= MOST_KEYS and padded - total - keys <= MOST_PADDING * padded
        if groups and n == tokens and fits:
            groups[-1].append(index)
            total += keys
        else:
            groups.append([index])
            tokens, longest, total = n, keys, keys
    return [sorted(group) for group in groups]


def build_groups(
    chunks: Sequence[SequenceChunk], heads_per_kv_head: int, dtype: torch.dtype, device: torch.device
) -> list[AttentionGroup]:
    """Groups that cover all chunks of a step; `dtype` is that of the queries."""
    starts = [0, *accumulate(chunk.num_tokens for chunk in chunks)]
    groups: list[AttentionGroup] = []
    for members in partition([(chunk.num_tokens, chunk.num_keys) for chunk in chunks]):
        group = [chunks[index] for index in members]
        n = group[0].num_tokens
        rows = np.concatenate([np.arange(starts[index], starts[index] + n) for index in members])
        bias = _bias(group, dtype)
        groups.append(
            AttentionGroup(
                size=len(group),
                num_tokens=n,
                rows=None if len(members) == len(chunks) else torch.from_numpy(rows).to(device),
                key_slots=torch.from_numpy(_key_slots(group)).to(device),
                bias=None if bias is None else bias.repeat(1, 1, heads_per_kv_head, 1).to(device),
            )
        )
    return groups


def _key_slots(group: Sequence[SequenceChunk]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """[b * k]; padding points at the sequence's own first key, so that no other sequence's numbers come near it."""
    k = max(chunk.num_keys for chunk in group)
    slots = np.empty((len(group), k), dtype=np.int64)
    for row, chunk in zip(slots, group, strict=True):
        c, used = len(chunk.context_slots), chunk.num_keys
        row[:c] = chunk.context_slots
        row[c:used] = chunk.window_slots
        row[used:] = row[0]
    return slots.reshape(-1)


def _bias(group: Sequence[SequenceChunk], dtype: torch.dtype) -> torch.Tensor | None:
    """[b, 1, n, k], 0 or -inf."""
    k = max(chunk.num_keys for chunk in group)
    if all(chunk.mask is None and chunk.num_keys == k for chunk in group):
        return None
    bias = torch.zeros(len(group), 1, group[0].num_tokens, k, dtype=dtype)
    for rows, chunk in zip(bias[:, 0], group, strict=True):
        c, used = len(chunk.context_slots), chunk.num_keys
        rows[:, used:] = float("-inf")
        if chunk.mask is not None:
            rows[:, c:used].masked_fill_(~chunk.mask, float("-inf"))
    return bias
