"""The commands at the top of the training examples for small models, run as they stand there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli import app

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["medusa2", "layerskip"])
def test_they_run_as_they_stand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "train" / f"{name}.yaml").read_text()
    commands = re.findall(r"^# outrider (.+)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, f"{command}: {result.output}"
