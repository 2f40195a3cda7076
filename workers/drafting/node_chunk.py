"""Some nodes of a growing tree, as a chunk of a forward pass."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from workers.attention.forward_context import SequenceChunk, Slots
from workers.drafting.tree import Node

__all__ = ["node_chunk"]


def node_chunk(nodes: Sequence[Node], slot_of: Callable[[Node], int], context_slots: Slots) -> SequenceChunk:
    """Each node sees all committed tokens, its ancestors and itself; the logits of all are wanted."""
    paths = [node.path() for node in nodes]
    column: dict[Node, int] = {}  # of the window
    for path in paths:
        for node in path:
            column.setdefault(node, len(column))
    mask = np.zeros((len(paths), len(column)), dtype=np.bool_)
    for row, path in enumerate(paths):
        mask[row, [column[node] for node in path]] = True
    return SequenceChunk(
        token_ids=[node.token for node in nodes],
        positions=[node.position for node in nodes],
        slots=np.array([slot_of(node) for node in nodes], dtype=np.int64),
        context_slots=context_slots,
        window_slots=np.array([slot_of(node) for node in column], dtype=np.int64),
        mask=torch.from_numpy(mask) if len(paths) > 1 else None,
        logits_for=range(len(paths)),
    )
