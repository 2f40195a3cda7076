"""What a user can mend is one line and an exit code, never a traceback, whichever part of the program raised it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from cluster.cli.main import app
from cluster.cli.output import friendly_errors
from workers.core.errors import ConfigurationError

Settings = dict[str, Any]

NOWHERE = "{folder}/nowhere"
TRAINING: Settings = {"target": NOWHERE, "data": "{folder}/data", "output": "{folder}/out"}
PROBE: Settings = {"target": {"model": "{target}", "dtype": "float32"}, "prompts": "{folder}/prompts.jsonl"}
LOOKUP: Settings = {**PROBE, "proposers": {"lookup": {"method": "ngram"}}}


def _proposer(**settings: Any) -> Settings:
    return {**PROBE, "proposers": {"one": settings}}


@pytest.fixture
def run(tiny_target: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs a command with settings; {target}, {folder} and {config} in words and settings stand for paths."""
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one two"}\n')
    (tmp_path / "draft").mkdir()
    draft = {"base": "gone", "layers": [0], "hidden_size": 64, "vocab_size": 512}
    (tmp_path / "draft" / "draft.json").write_text(json.dumps(draft))

    def fill(text: str) -> str:
        for name, path in (("target", tiny_target), ("folder", tmp_path), ("config", tmp_path / "config.yaml")):
            text = text.replace("{" + name + "}", str(path))
        return text

    def call(command: str, settings: Settings) -> Result:
        (tmp_path / "config.yaml").write_text(fill(yaml.safe_dump(settings)))
        return CliRunner().invoke(app, [fill(word) for word in command.split()])

    return call


@pytest.mark.parametrize(
    ("command", "settings", "code", "said"),
    [
        ("train data {config}", {"model": {"model": NOWHERE}, "output": "{folder}/out"}, 2, "there is no such folder"),
        ("train draft {config}", {**TRAINING, "layers": [0]}, 2, "there is no such folder"),
        ("train medusa {config}", {**TRAINING, "heads": {}}, 2, "there is no such folder"),
        ("model export {folder}/draft {folder}/whole --base {folder}/nowhere", {}, 2, "there is no such folder"),
        ("probe {config}", _proposer(method="medusa", medusa={"model": NOWHERE}), 2, "nowhere"),
        ("probe {config}", _proposer(method="medusa"), 2, "proposers.one: method medusa needs `medusa.model`"),
        ("probe {config}", _proposer(method="layerskip"), 2, "proposers.one: method layerskip needs"),
        (
            "probe {config}",
            _proposer(method="draft_model", drafter={"model": {"model": NOWHERE}}),
            1,
            "the draft server did not start",
        ),
        (
            "probe {config}",
            {**LOOKUP, "trees": [{"depth": 2, "nodes": 1024}], "concurrency": [1024]},
            2,
            "max_tokens_per_step: Input should be less than or equal to 1000000",
        ),
        ("probe {config} --json {folder}/none/a.json", LOOKUP, 2, "--json: there is no folder"),
        ("probe {config} --json {folder}", LOOKUP, 2, "is a folder; name a file"),
        ("probe {config} --plot {folder}/a.txt", LOOKUP, 2, "does not end in .png"),
        ("probe {folder}/nowhere.yaml", {}, 2, "there is no such file"),
    ],
)
def test_a_mistake_is_told_in_words(
    run: Callable[..., Result], command: str, settings: Settings, code: int, said: str
) -> None:
    result = run(command, settings)
    assert (result.exit_code, type(result.exception)) == (code, SystemExit), result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_file_that_gives_a_key_twice_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("prompts: a\nprompts: b\n")
    result = run("probe {folder}/twice.yaml", {})
    assert result.exit_code == 2
    assert "the key 'prompts' is given twice" in result.stderr


def test_messages_are_printable_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), friendly_errors():
        raise ConfigurationError("first\n\x1b[31m\0[bold]" + "x" * 10**6 + "\n" * 10**5 + "last")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:1] == ["error: first"]
    assert lines[1].startswith("\\x1b[31m\\x00[bold]xxx")
    assert all(line.isprintable() and len(line) <= 2500 for line in lines)
    assert lines[-1] == "... and 99942 more"


@pytest.mark.parametrize("option", ["--api-key-file", "--ca"])
def test_files_without_an_end_are_not_read_to_it(option: str) -> None:
    result = CliRunner().invoke(app, ["status", option, "/dev/zero"])
    assert result.exit_code == 2
    assert result.stderr == f"error: {option}: /dev/zero: is too large; at most 1048576 bytes are allowed\n"


def test_programming_errors_keep_their_traceback() -> None:
    with pytest.raises(KeyError), friendly_errors():
        raise KeyError("x")
