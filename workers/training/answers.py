"""The target's own answers to a set of prompts, with the hidden states behind them.

A folder holds `answers.jsonl` (a line for each answer), `hidden.bin` (fp16 rows, the state that each answer token was
chosen from, answer after answer) and `provenance.json`. A run that was interrupted goes on behind its last whole line.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from workers.core.errors import ConfigurationError

__all__ = ["Answer", "AnswerReader", "AnswerWriter"]

Rows = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Answer:
    """One answer. `hidden_rows` of its tokens, from the first one, have a hidden state."""

    prompt_index: int  # line of the prompt file, from 0
    prompt_token_ids: list[int]
    answer_token_ids: list[int]
    temperature: float
    seed: int
    hidden_rows: int


class AnswerWriter:
    """Appends answers; `done` are the prompt indices that the folder holds already."""

    def __init__(self, folder: Path, hidden_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = folder / "answers.jsonl"
        answers, length = _whole_lines(lines) if lines.exists() else ([], 0)
        self.done = {answer.prompt_index for answer in answers}
        self.num_tokens = sum(len(answer.answer_token_ids) for answer in answers)
        self._lines = lines.open("ab")
        self._lines.truncate(length)
        self._hidden = (folder / "hidden.bin").open("ab")
        self._hidden.truncate(sum(answer.hidden_rows for answer in answers) * hidden_size * 2)

    def append(self, answer: Answer, hidden: Rows) -> None:
        """Write one answer; `hidden` is [answer.hidden_rows, hidden_size]."""
        if len(hidden) != answer.hidden_rows:
            raise ValueError(f"{answer.hidden_rows} rows announced, {len(hidden)} given")
        self._hidden.write(np.ascontiguousarray(hidden, dtype=np.float16).tobytes())
        self._hidden.flush()
        self._lines.write(json.dumps(asdict(answer), separators=(",", ":")).encode() + b"\n")
        self._lines.flush()
        self.done.add(answer.prompt_index)
        self.num_tokens += len(answer.answer_token_ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        self._hidden.close()


class AnswerReader(Sequence[tuple[Answer, Rows]]):
    """The answers of one or more folders with their hidden states [rows, hidden_size], in the order given."""

    def __init__(self, folders: Sequence[Path], hidden_size: int) -> None:
        self.answers: list[Answer] = []
        self._rows: list[Rows] = []  # views of the mapped files, one for each answer
        for folder in folders:
            answers, hidden = _read_folder(folder, hidden_size)
            self.answers += answers
            ends = np.cumsum([answer.hidden_rows for answer in answers], dtype=np.int64)
            self._rows += np.split(hidden, ends[:-1]) if answers else []

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, index: int) -> tuple[Answer, Rows]:  # type: ignore[override]
        return self.answers[index], np.asarray(self._rows[index])


def _read_folder(folder: Path, hidden_size: int) -> tuple[list[Answer], Rows]:
    lines, hidden = folder / "answers.jsonl", folder / "hidden.bin"
    if not lines.is_file() or not hidden.is_file():
        raise ConfigurationError(f"{str(folder)!r} holds no answers; `outrider train data` writes them")
    answers, _ = _whole_lines(lines)
    shape = (sum(answer.hidden_rows for answer in answers), hidden_size)
    if hidden.stat().st_size < shape[0] * hidden_size * 2:
        raise ConfigurationError(
            f"{str(hidden)!r} is too short for {shape[0]} states of size {hidden_size}: it belongs to another target, "
            "or was cut off; run `outrider train data` again"
        )
    return answers, np.memmap(hidden, np.float16, "r", shape=shape) if shape[0] else np.empty(shape, np.float16)


def _whole_lines(path: Path) -> tuple[list[Answer], int]:
    """The answers of all lines that were written to their end, and the length of those lines in bytes."""
    data = path.read_bytes()
    length = data.rfind(b"\n") + 1
    answers: list[Answer] = []
    for number, line in enumerate(data[:length].splitlines(), 1):
        try:
            answers.append(Answer(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"{str(path)!r}, line {number}: not an answer ({error})") from None
    return answers, length
