"""The target's own answers to a set of prompts, with the hidden states behind them.

A folder holds `answers.jsonl` (a line for each answer), `hidden.bin` (fp16 rows, the state that each answer token was
chosen from, answer after answer) and `provenance.json`. A run that was interrupted goes on behind its last whole line.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from workers.core.errors import ConfigurationError
from workers.training.data_provenance import read_data_provenance

__all__ = ["HIDDEN", "LINES", "Answer", "AnswerReader", "AnswerWriter", "read_answers"]

LINES, HIDDEN = "answers.jsonl", "hidden.bin"

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

    def rows_within(self, max_length: int) -> int:
        """Rows whose tokens lie within the first `max_length` tokens of prompt and answer."""
        return min(self.hidden_rows, max(0, max_length - len(self.prompt_token_ids) + 1))


class AnswerWriter:
    """Appends answers; `done` are the prompt indices that the folder holds already.

    What an interruption left behind the last answer that is there with all its rows is cut off.
    """

    def __init__(self, folder: Path, hidden_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / LINES).open("ab")
        self._hidden = (folder / HIDDEN).open("ab")
        lines = _whole_lines(folder / LINES)
        ends = accumulate(line.answer.hidden_rows * hidden_size * 2 for line in lines)
        there = (folder / HIDDEN).stat().st_size
        kept = list(takewhile(lambda entry: entry[1] <= there, zip(lines, ends, strict=True)))
        self._lines.truncate(kept[-1][0].end if kept else 0)
        self._hidden.truncate(kept[-1][1] if kept else 0)
        self.done = {line.answer.prompt_index for line, _ in kept}
        self.num_tokens = sum(len(line.answer.answer_token_ids) for line, _ in kept)

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


def read_answers(folder: Path) -> list[Answer]:
    """The answers of a folder without their states; raises `ConfigurationError` when it holds none."""
    if not (folder / LINES).is_file() or not (folder / HIDDEN).is_file():
        raise ConfigurationError(f"{str(folder)!r} holds no answers; `outrider train data` writes them")
    return [line.answer for line in _whole_lines(folder / LINES)]


def _read_folder(folder: Path, hidden_size: int) -> tuple[list[Answer], Rows]:
    hidden = folder / HIDDEN
    answers = read_answers(folder)
    shape = (sum(answer.hidden_rows for answer in answers), hidden_size)
    if hidden.stat().st_size < shape[0] * hidden_size * 2:
        raise ConfigurationError(
            f"{str(hidden)!r} is too short for {shape[0]} states of size {hidden_size}: it belongs to another target, "
            "or was cut off; run `outrider train data` again"
        )
    left_over = hidden.stat().st_size - shape[0] * hidden_size * 2
    if left_over > _longest(folder, answers) * hidden_size * 2:
        raise ConfigurationError(
            f"{str(hidden)!r} is {left_over} bytes too long for {shape[0]} states of size {hidden_size}: it belongs to "
            "another target"
        )
    return answers, np.memmap(hidden, np.float16, "r", shape=shape) if shape[0] else np.empty(shape, np.float16)


def _longest(folder: Path, answers: list[Answer]) -> int:
    """Tokens of the longest answer that a run may have been interrupted in."""
    known = read_data_provenance(folder)
    allowed = known["config"].get("max_tokens", 0) if known else 0
    return max(allowed, *(len(answer.answer_token_ids) for answer in answers), 0)


class _Line(NamedTuple):
    answer: Answer
    end: int  # in bytes from the start of the file


def _whole_lines(path: Path) -> list[_Line]:
    """All lines that were written to their end."""
    lines: list[_Line] = []
    end = 0
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        end += len(line) + 1
        try:
            lines.append(_Line(Answer(**json.loads(line)), end))
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"{str(path)!r}, line {number}: not an answer ({error})") from None
    return lines
