"""A training run's folder: its settings, its data and where it came from, over several starts."""

import json
from pathlib import Path

import pytest

from workers.core.errors import ConfigurationError
from workers.core.folders import write_whole
from workers.training.optimizer_config import OptimizerConfig
from workers.training.run_folder import TrainingRun
from workers.training.run_settings import RunSettings

LOG = [{"step": 1, "loss": 1.0}, {"step": 1, "eval_loss": 0.5}]


@pytest.fixture
def config(tmp_path: Path) -> RunSettings:
    (tmp_path / "data.txt").write_text("one\n\ntwo\n")
    return RunSettings(data=(tmp_path / "data.txt",), output=tmp_path / "out")


def test_the_origin_is_that_of_the_first_start(config: RunSettings, tmp_path: Path) -> None:
    first = TrainingRun(config, "hub/model")
    checkpoints = first.open_checkpoints()
    begun = json.loads((checkpoints / "origin.json").read_text())
    assert begun["commit"]
    assert begun["data"][0]["xxh3_128"]
    assert {"peft", "accelerate", "safetensors", "tokenizers"} <= begun["versions"].keys()
    again = TrainingRun(config, "hub/model")
    assert again.open_checkpoints() == checkpoints
    again.write(tmp_path, LOG, "title", more=3)
    origin = json.loads((tmp_path / "provenance.json").read_text())
    assert {**begun, "resumed": origin["resumed"]}.items() <= origin.items()
    assert [set(start) for start in origin["resumed"]] == [{"commit", "uncommitted_changes", "time", "argv"}]
    assert (origin["metrics"], origin["more"]) == ({"loss": 0.5}, 3)
    assert origin["ended"]


def test_other_settings_and_other_data_are_refused(config: RunSettings) -> None:
    TrainingRun(config, "hub/model").open_checkpoints()
    other = config.model_copy(update={"optimizer": OptimizerConfig(seed=1)})
    with pytest.raises(ConfigurationError, match="other settings"):
        TrainingRun(other, "hub/model").open_checkpoints()
    config.data[0].write_text("one\n\nthree\n")
    with pytest.raises(ConfigurationError, match="has changed since; delete the folder, or choose another output"):
        TrainingRun(config, "hub/model").open_checkpoints()


def test_checkpoints_of_before_origins_were_kept(config: RunSettings, tmp_path: Path) -> None:
    folder = tmp_path / "out.checkpoints"
    (folder / "checkpoint-3").mkdir(parents=True)
    (folder / "training_config.json").write_text(config.model_dump_json(indent=2))
    TrainingRun(config, "hub/model").open_checkpoints()
    assert len(json.loads((folder / "origin.json").read_text())["resumed"]) == 1


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a", "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_device_that_is_not_there(config: RunSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="no CUDA device is available"):
        TrainingRun(config.model_copy(update={"optimizer": OptimizerConfig(device="cuda")}), "hub/model")


def test_data_that_is_not_there(config: RunSettings) -> None:
    config.data[0].unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        TrainingRun(config, "hub/model").open_checkpoints()
