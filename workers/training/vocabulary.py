"""Reduced vocabularies: what a draft may propose."""

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from workers.training.answers import Answer

__all__ = ["frequent_tokens"]


def frequent_tokens(answers: Sequence[Answer], size: int, vocab_size: int, always: Iterable[int] = ()) -> torch.Tensor:
    """The most frequent answer tokens, ascending, int64; `always` among them.

    Filled up with the lowest ids when answers have fewer.
    """
    if size >= vocab_size:
        return torch.arange(vocab_size)
    counts = Counter(token for answer in answers for token in answer.answer_token_ids)
    chosen = dict.fromkeys(always)
    for token in (*(token for token, _ in counts.most_common()), *range(vocab_size)):
        if len(chosen) >= size:
            break
        chosen[token] = None
    return torch.tensor(sorted(chosen))
