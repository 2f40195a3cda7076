"""Training texts as token sequences of equal length."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import Dataset

from workers.core.errors import ConfigurationError
from workers.text.tokenizer import Tokenizer
from workers.training.answers import read_answers
from workers.training.data_provenance import read_data_provenance
from workers.training.target_identity import check_tokens

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


def read_texts(paths: Sequence[Path], tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
    """Token ids of each text, ended by the end-of-sequence token; see `LayerSkipTrainingConfig.data`.

    Raises `ConfigurationError` for what cannot be read, answers in other tokens, and fewer than two texts.
    """
    tokens = [text for path in paths for text in _read_one(path, tokenizer, vocab_size)]
    if len(tokens) < 2:
        raise ConfigurationError(
            f"data {', '.join(map(str, paths))!r} needs at least two texts (of a text file, with a blank line between "
            "them)"
        )
    return tokens


def _read_one(path: Path, tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
    if path.is_dir():
        return _read_answers(path, tokenizer, vocab_size)
    end = list(tokenizer.eos_token_ids)[:1]
    try:
        texts = [text.strip() for text in path.read_text(encoding="utf-8").split("\n\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"text file {str(path)!r} cannot be read: {error}") from None
    return [tokenizer.encode(text) + end for text in texts if text]


def _read_answers(folder: Path, tokenizer: Tokenizer, vocab_size: int) -> list[list[int]]:
    """Whose answers they are does not matter, as long as the tokens are the same."""
    known = (read_data_provenance(folder) or {}).get("target") or {}
    if known.get("tokenizer_hash", tokenizer.tokenizer_hash) != tokenizer.tokenizer_hash:
        raise ConfigurationError(f"{str(folder)!r} holds answers of a target with another tokenizer")
    answers = read_answers(folder)
    check_tokens(answers, vocab_size)
    return [[*answer.prompt_token_ids, *answer.answer_token_ids] for answer in answers]
