"""Folders of answers: what interruptions leave behind, whose answers they are, and which can be learnt from."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.core.errors import ConfigurationError
from workers.training.answers import HIDDEN, LINES, Answer, AnswerReader, AnswerWriter
from workers.training.batches import AnswerBatches, answer_batches
from workers.training.optimizer_config import OptimizerConfig
from workers.training.target_identity import TargetIdentity, open_answers

SIZE = 4
TARGET = TargetIdentity(hidden_size=SIZE, vocab_size=16, num_layers=2, tokenizer_hash="t", weights_hash="w")


def write(folder: Path, rows: list[int], size: int = SIZE, prompt: int = 1, **origin: Any) -> Path:
    """Answers of so many rows, whose states have their number as values."""
    with AnswerWriter(folder, size) as writer:
        for index, count in enumerate(rows):
            answer = Answer(index, [1] * prompt, [3] * (count + 1), 0.0, 7, count)
            writer.append(answer, np.full((count, size), index, dtype=np.float16))
    if origin:
        (folder / "provenance.json").write_text(json.dumps({"config": {"max_tokens": 8}, **origin}))
    return folder


@pytest.mark.parametrize(("lost", "kept"), [(1, 2), (3 * SIZE * 2, 2), (3 * SIZE * 2 + 1, 1), (6 * SIZE * 2, 0)])
def test_answers_whose_states_were_lost_are_written_again(tmp_path: Path, lost: int, kept: int) -> None:
    write(tmp_path, [1, 2, 3])
    hidden = tmp_path / HIDDEN
    hidden.write_bytes(hidden.read_bytes()[:-lost])
    with AnswerWriter(tmp_path, SIZE) as writer:
        assert writer.done == set(range(kept))
        writer.append(Answer(9, [1], [3, 3], 0.0, 7, 1), np.full((1, SIZE), 9, dtype=np.float16))
    reader = AnswerReader([tmp_path], SIZE)
    assert [states[:, 0].tolist() for _, states in reader] == [*[[0], [1, 1], [2, 2, 2]][:kept], [9]]
    assert hidden.stat().st_size == sum(answer.hidden_rows for answer in reader.answers) * SIZE * 2


def test_half_an_answer_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    with (tmp_path / HIDDEN).open("ab") as file:
        file.write(b"x" * 11)
    with (tmp_path / LINES).open("ab") as file:
        file.write(b'{"prompt_in')
    with AnswerWriter(tmp_path, SIZE) as writer:
        assert writer.done == {0, 1}
    assert (tmp_path / HIDDEN).stat().st_size == 3 * SIZE * 2
    assert (tmp_path / LINES).read_bytes().endswith(b"}\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights_hash": "other"}, "another target: weights_hash differ"),
        ({"tokenizer_hash": "u", "num_layers": 3}, "another target: num_layers, tokenizer_hash differ"),
        ({"hidden_size": 8}, "another target: hidden_size differ"),
    ],
)
def test_answers_of_another_target(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write(tmp_path, [3, 3], target=dataclasses.asdict(TARGET))
    assert len(open_answers([tmp_path], TARGET)) == 2
    assert len(open_answers([tmp_path], dataclasses.replace(TARGET, weights_hash=None))) == 2
    with pytest.raises(ConfigurationError, match=message):
        open_answers([tmp_path], dataclasses.replace(TARGET, **change))


def test_answers_without_a_record_of_their_target(tmp_path: Path) -> None:
    folder = write(tmp_path, [6] * 4, target_fingerprint="f")
    assert len(open_answers([folder], TARGET)) == 4
    with pytest.raises(ConfigurationError, match="144 bytes too long for 24 states of size 1"):
        open_answers([folder], dataclasses.replace(TARGET, hidden_size=1))
    with pytest.raises(ConfigurationError, match="the answers hold token 3, and the target has 3 tokens"):
        open_answers([folder], dataclasses.replace(TARGET, vocab_size=3))
    with (folder / HIDDEN).open("ab") as file:
        file.write(b"x" * 2 * SIZE * 8)  # an answer that was interrupted
    assert len(open_answers([folder], TARGET)) == 4
    (folder / "provenance.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"provenance\.json.* cannot be read"):
        open_answers([folder], TARGET)


def numbers(pairs: list[tuple[Answer, Any]]) -> dict[str, Any]:
    return {"numbers": [answer.prompt_index for answer, _ in pairs]}


def test_answers_with_too_few_rows_are_left_out(tmp_path: Path) -> None:
    reader = AnswerReader([write(tmp_path, [0, 1, 2, 3], prompt=5)], SIZE)

    def used(**limits: int) -> list[int]:
        batches = AnswerBatches(reader, range(4), 2, numbers, 0, **limits)
        return sorted(number for index in range(len(batches)) for number in batches[index]["numbers"])

    assert used() == [1, 2, 3]
    assert used(min_rows=2) == [2, 3]
    assert used(max_length=5) == [1, 2, 3], "the first state stands at the prompt's last token"
    assert used(max_length=5, min_rows=2) == []
    assert used(max_length=4) == []


@pytest.mark.parametrize(
    ("rows", "limits", "message"),
    [
        ([], {}, "in the training answers .data has 0 in all"),
        ([3], {}, "in the training answers .data has 1 in all"),
        ([1] * 8, {"min_rows": 2}, "each needs at least 2 tokens with a hidden state. Let"),
        ([3] * 8, {"max_length": 4}, "within max_length 4 together with its prompt"),
    ],
)
def test_nothing_to_learn_from(tmp_path: Path, rows: list[int], limits: dict[str, int], message: str) -> None:
    reader = AnswerReader([write(tmp_path, rows, prompt=5)], SIZE)
    with pytest.raises(ConfigurationError, match=message):
        answer_batches(reader, OptimizerConfig(), numbers, **limits)
