"""Training texts as token sequences of equal length."""

from pathlib import Path

import torch
from torch.utils.data import Dataset

from workers.core.errors import ConfigurationError
from workers.text.tokenizer import Tokenizer
from workers.training.answers import AnswerReader

__all__ = ["Sequences", "read_texts"]


class Sequences(Dataset[torch.Tensor]):
    """Texts one after another, cut into rows. What is left over at the end is not used."""

    def __init__(self, texts: list[list[int]], length: int) -> None:
        tokens = torch.tensor([token for text in texts for token in text], dtype=torch.long)
        count = len(tokens) // length
        self._rows = tokens[: count * length].view(count, length)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows[index]


def read_texts(path: Path, tokenizer: Tokenizer, hidden_size: int) -> list[list[int]]:
    """Token ids of each text, ended by the end-of-sequence token; see `LayerSkipTrainingConfig.data`."""
    end = list(tokenizer.eos_token_ids)[:1]
    if path.is_dir():
        answers = AnswerReader([path], hidden_size).answers
        return [[*answer.prompt_token_ids, *answer.answer_token_ids] for answer in answers]
    try:
        texts = [text.strip() for text in path.read_text(encoding="utf-8").split("\n\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"text file {str(path)!r} cannot be read: {error}") from None
    tokens = [tokenizer.encode(text) + end for text in texts if text]
    if len(tokens) < 2:
        raise ConfigurationError(f"text file {str(path)!r} needs at least two texts, with a blank line between them")
    return tokens
