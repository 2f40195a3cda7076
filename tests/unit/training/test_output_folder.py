"""What a training run may replace with its output."""

import json
import os
from pathlib import Path

import pytest

from workers.core.errors import ConfigurationError
from workers.training.output_folder import check_output

TRAINED = json.dumps({"config": {}, "data": [], "metrics": {}})


def test_new_empty_and_older_outputs_may_be_replaced(tmp_path: Path) -> None:
    check_output(tmp_path / "new", {"the model": "hub/model"})
    (tmp_path / "out").mkdir()
    check_output(tmp_path / "out", {})
    (tmp_path / "out" / "provenance.json").write_text(TRAINED)
    check_output(tmp_path / "out", {})


@pytest.mark.parametrize("origin", [None, "{", "[]", '{"config": {}, "runs": []}'])
def test_anything_else_is_left_alone(tmp_path: Path, origin: str | None) -> None:
    (tmp_path / "thesis.txt").touch()
    if origin is not None:
        (tmp_path / "provenance.json").write_text(origin)
    for output in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(ConfigurationError, match="was not written by a training run"):
            check_output(output, {})


@pytest.mark.parametrize("output", ["model", ".", "model/heads", "./model/../model"])
def test_inputs_are_left_alone(tmp_path: Path, output: str) -> None:
    (tmp_path / "a" / "model").mkdir(parents=True)
    (tmp_path / "a" / "model" / "provenance.json").write_text(TRAINED)
    with pytest.raises(ConfigurationError, match=r"would replace the model .*, or lies within it"):
        check_output(tmp_path / "a" / output, {"the model": str(tmp_path / "a" / "model")})


@pytest.mark.parametrize("output", ["", ".", "..", os.sep])
def test_an_output_needs_a_name(output: str) -> None:
    with pytest.raises(ConfigurationError, match="has no name of its own"):
        check_output(Path(output), {})
