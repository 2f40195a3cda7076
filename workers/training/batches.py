"""Batches of answers of similar length, so that little is padding."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from workers.training.answers import AnswerReader

__all__ = ["AnswerBatches", "buckets", "split"]


def buckets(lengths: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Indices in batches; neighbours in length, ties broken at random. The last batch may be smaller."""
    shuffled = random.Random(seed).sample(range(len(lengths)), len(lengths))
    order = sorted(shuffled, key=lambda index: lengths[index])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def split(count: int, validation: int, seed: int) -> tuple[list[int], list[int]]:
    """Indices of training and validation answers; validation gets at most a fifth."""
    order = random.Random(seed).sample(range(count), count)
    size = min(validation, max(1, count // 5))
    return sorted(order[size:]), sorted(order[:size])


class AnswerBatches(Dataset[dict[str, Any]]):
    """A dataset whose items are whole batches, collated by `collate` from (answer, hidden states) pairs."""

    def __init__(
        self,
        reader: AnswerReader,
        indices: Sequence[int],
        batch_size: int,
        collate: Callable[[list[Any]], dict[str, Any]],
        seed: int,
    ) -> None:
        usable = [i for i in indices if reader.answers[i].hidden_rows > 0]
        lengths = [len(reader.answers[i].prompt_token_ids) + reader.answers[i].hidden_rows for i in usable]
        self._batches = [[usable[i] for i in batch] for batch in buckets(lengths, batch_size, seed)]
        self._reader = reader
        self._collate = collate

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._collate([self._reader[i] for i in self._batches[index]])
