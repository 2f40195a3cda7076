"""Batches of answers of similar length, so that little is padding."""

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from workers.core.errors import ConfigurationError
from workers.training.answers import AnswerReader
from workers.training.optimizer_config import OptimizerConfig

__all__ = ["AnswerBatches", "answer_batches", "buckets", "split"]

Collate = Callable[[list[Any]], dict[str, Any]]


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
    """A dataset whose items are whole batches, collated by `collate` from (answer, hidden states) pairs.

    Answers with fewer than `min_rows` states within the first `max_length` tokens are left out.
    """

    def __init__(
        self,
        reader: AnswerReader,
        indices: Sequence[int],
        batch_size: int,
        collate: Collate,
        seed: int,
        min_rows: int = 1,
        max_length: int = sys.maxsize,
    ) -> None:
        usable = [i for i in indices if reader.answers[i].rows_within(max_length) >= min_rows]
        lengths = [len(reader.answers[i].prompt_token_ids) + reader.answers[i].hidden_rows for i in usable]
        self._batches = [[usable[i] for i in batch] for batch in buckets(lengths, batch_size, seed)]
        self._reader = reader
        self._collate = collate

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._collate([self._reader[i] for i in self._batches[index]])


def answer_batches(
    reader: AnswerReader, config: OptimizerConfig, collate: Collate, min_rows: int = 1, max_length: int = sys.maxsize
) -> tuple[AnswerBatches, AnswerBatches]:
    """Batches to train on and to validate on; raises `ConfigurationError` when one of them would have none."""
    training, validation = (
        AnswerBatches(reader, part, config.batch_size, collate, config.seed, min_rows, max_length)
        for part in split(len(reader), config.validation_answers, config.seed)
    )
    for name, batches in (("training", training), ("validation", validation)):
        if not len(batches):
            limit = "" if max_length == sys.maxsize else f", within max_length {max_length} together with its prompt"
            raise ConfigurationError(
                f"there is nothing to learn from in the {name} answers (data has {len(reader)} in all): each needs "
                f"at least {min_rows} tokens with a hidden state{limit}. Let `outrider train data` write more"
            )
    return training, validation
