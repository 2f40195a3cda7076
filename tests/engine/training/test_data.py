"""`outrider train data`: answers of the target, with the hidden states behind them."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.models.loader import load_model
from workers.models.tiny import build_tiny_model
from workers.text.prompt_file import read_prompts
from workers.training.answers import Answer, AnswerReader, AnswerWriter
from workers.training.data import generate_data
from workers.training.data_config import DataConfig
from workers.training.target_identity import identify

HIDDEN = 4


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"tell me about number {n}"}) + "\n" for n in range(6)))
    return path


def config(tiny_target: Path, prompts: Path, output: Path) -> DataConfig:
    return DataConfig(
        model=ModelConfig(model=str(tiny_target), dtype="float32"),
        prompts=prompts,
        output=output,
        max_tokens=12,
        concurrency=3,
    )


def test_hidden_states_lead_to_the_answers(tiny_target: Path, prompts: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, prompts, tmp_path / "out")
    generate_data(settings)
    loaded = load_model(settings.model)
    reader = AnswerReader([tmp_path / "out"], loaded.hidden_size)
    assert sorted(answer.prompt_index for answer in reader.answers) == list(range(6))
    assert {answer.temperature for answer in reader.answers} == {0.0, 0.8}
    for answer, hidden in reader:
        assert len(hidden) == answer.hidden_rows >= len(answer.answer_token_ids) - 1
        if answer.temperature == 0.0:
            logits = loaded.lm_head(torch.from_numpy(hidden.astype(np.float32))[None])[0][:, : loaded.vocab_size]
            best = logits.topk(2).values
            clear = (best[:, 0] - best[:, 1]) > 0.05  # fp16 states may turn near ties
            chosen = torch.tensor(answer.answer_token_ids[: len(hidden)])
            assert bool((logits.argmax(1) == chosen)[clear].all())
            assert clear.sum() > len(hidden) / 2


def test_an_interrupted_run_ends_like_one_that_was_not(tiny_target: Path, prompts: Path, tmp_path: Path) -> None:
    whole, cut = config(tiny_target, prompts, tmp_path / "whole"), config(tiny_target, prompts, tmp_path / "cut")
    generate_data(whole)
    generate_data(cut)
    lines = (tmp_path / "cut" / "answers.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut" / "answers.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    generate_data(cut)
    size = load_model(whole.model).hidden_size
    one, two = AnswerReader([tmp_path / "whole"], size), AnswerReader([tmp_path / "cut"], size)
    by_index = {answer.prompt_index: (answer, hidden) for answer, hidden in two}
    assert len(by_index) == len(two) == len(one) == 6
    for answer, hidden in one:
        other, rows = by_index[answer.prompt_index]
        assert other == answer
        np.testing.assert_allclose(rows.astype(np.float32), hidden.astype(np.float32), atol=2e-2)


def test_every_run_is_listed_and_none_changes_what_the_folder_holds(
    tiny_target: Path, prompts: Path, tmp_path: Path
) -> None:
    settings = config(tiny_target, prompts, tmp_path / "out")
    generate_data(settings.model_copy(update={"num_prompts": 2}))
    path = settings.output / "provenance.json"
    first = json.loads(path.read_text())
    assert first["target"]["weights_hash"]
    generate_data(settings)
    origin = json.loads(path.read_text())
    assert {**first, "runs": origin["runs"]} == origin
    assert [(run["num_prompts"], run["answers"]) for run in origin["runs"]] == [(2, 0), (10_000, 2)]
    generate_data(settings)
    assert json.loads(path.read_text()) == origin, "nothing was left to do"
    other = settings.model_copy(update={"temperatures": (0.5,), "num_prompts": 3})
    with pytest.raises(ConfigurationError, match=r"run with other settings \(temperatures was \[0\.0, 0\.8\]\)"):
        generate_data(other)
    bfloat16 = settings.model_copy(update={"model": ModelConfig(model=str(tiny_target), dtype="bfloat16")})
    with pytest.raises(ConfigurationError, match="of the same one in another dtype"):
        generate_data(bfloat16)
    prompts.write_text('{"prompt": "something else"}\n')
    with pytest.raises(ConfigurationError, match="another prompt 1: the prompts have changed"):
        generate_data(settings)


def test_a_folder_of_before_runs_were_listed_is_continued(tiny_target: Path, prompts: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, prompts, tmp_path / "out")
    generate_data(settings.model_copy(update={"num_prompts": 2}))
    path = settings.output / "provenance.json"
    old = {name: value for name, value in json.loads(path.read_text()).items() if name not in ("runs", "target")}
    path.write_text(json.dumps(old))
    generate_data(settings)
    origin = json.loads(path.read_text())
    assert old.items() <= origin.items()
    assert origin["runs"][0] == {name: old[name] for name in ("commit", "uncommitted_changes", "time", "argv")}
    assert origin["runs"][1]["answers"] == 2
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"without a provenance\.json"):
        generate_data(settings)


def test_prompts_that_cannot_be_answered(tiny_target: Path, prompts: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, prompts, tmp_path / "out")
    with prompts.open("a") as file:
        file.write(json.dumps({"prompt": "word " * 600}) + "\n")
    with pytest.raises(ConfigurationError, match=r"prompts\.jsonl, prompt 7: .* exceed the context of 512 tokens"):
        generate_data(settings)
    assert not settings.output.exists()


def test_the_identity_of_a_target_is_that_of_its_files(tiny_target: Path, tmp_path: Path) -> None:
    configuration = AutoConfig.from_pretrained(tiny_target)
    moved = shutil.copytree(tiny_target, tmp_path / "moved")
    known = identify(str(tiny_target), configuration)
    assert identify(str(moved), configuration) == known
    other = build_tiny_model(tmp_path / "other", seed=5)
    assert identify(str(other), configuration).differences(asdict(known)) == ["weights_hash"]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float16).reshape(2, HIDDEN)
    with AnswerWriter(tmp_path, HIDDEN) as writer:
        writer.append(Answer(0, [1], [2, 3], 0.0, 7, 2), rows)
        writer.append(Answer(5, [1, 2], [3], 0.8, 8, 0), rows[:0])
        writer.append(Answer(3, [1, 2], [3, 4, 5], 0.8, 8, 1), rows[1:])
    reader = AnswerReader([tmp_path], HIDDEN)
    assert [answer.prompt_index for answer in reader.answers] == [0, 5, 3]
    np.testing.assert_array_equal(reader[0][1], rows)
    np.testing.assert_array_equal(reader[2][1], rows[1:])
    with AnswerWriter(tmp_path, HIDDEN) as writer:
        assert writer.done == {0, 5, 3}
        with pytest.raises(ValueError, match="2 rows announced"):
            writer.append(Answer(0, [1], [2, 3], 0.0, 7, 2), rows[:1])


def test_folders_are_read_one_after_another(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for number, folder in enumerate(folders):
        with AnswerWriter(folder, HIDDEN) as writer:
            writer.append(Answer(0, [1], [2, number], 0.0, 7, 2), np.full((2, HIDDEN), number, dtype=np.float16))
            writer.append(Answer(1, [1], [3, number], 0.0, 7, 1), np.full((1, HIDDEN), 10 + number, dtype=np.float16))
    reader = AnswerReader(folders, HIDDEN)
    assert [answer.answer_token_ids for answer, _ in reader] == [[2, 0], [3, 0], [2, 1], [3, 1]]
    assert [hidden[:, 0].tolist() for _, hidden in reader] == [[0, 0], [10], [1, 1], [11]]


def test_states_of_another_target_are_refused(tmp_path: Path) -> None:
    with AnswerWriter(tmp_path, HIDDEN) as writer:
        writer.append(Answer(0, [1], [2, 3], 0.0, 7, 2), np.zeros((2, HIDDEN), dtype=np.float16))
    with pytest.raises(ConfigurationError, match="too short for 2 states of size 8"):
        AnswerReader([tmp_path], 8)
    with pytest.raises(ConfigurationError, match="holds no answers"):
        AnswerReader([tmp_path / "nothing"], 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no prompts"),
        ('{"prompt": "a"}\nnot json\n', "line 2: not JSON"),
        ('{"prompt": ""}\n', "line 1: .*no text may be empty"),
        ('{"prompt": 3}\n', "line 1: each line must be"),
        ('{"prompt": "a", "temperature": 1}\n', "line 1: each line must be"),
        ('{"messages": []}\n', "line 1: each line must be"),
        ('\n{"messages": [{"role": "user"}]}\n', "line 2: each line must be"),
        ("[1]\n", "line 1: each line must be"),
    ],
)
def test_malformed_prompt_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_prompts(path)


def test_line_breaks_of_other_alphabets_belong_to_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "one\u2028two\u0085three"}, ensure_ascii=False) + "\r\n", encoding="utf-8")
    [[message]] = read_prompts(path)
    assert message.content == "one\u2028two\u0085three"


def test_a_prompt_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")
