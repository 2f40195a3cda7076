"""Every file under examples/train, and the probe's, is valid for the command that it names."""

import re
from pathlib import Path

import pytest

from cluster.config.yaml_file import read_settings
from workers.core.settings import Settings
from workers.probe.config import ProbeConfig
from workers.training.data_config import DataConfig
from workers.training.draft.config import DraftTrainingConfig
from workers.training.layerskip.config import LayerSkipTrainingConfig
from workers.training.medusa.config import Medusa2TrainingConfig, MedusaTrainingConfig

FOLDER = Path(__file__).parents[3] / "examples"
CLASSES: dict[str, type[Settings]] = {
    "train data": DataConfig,
    "train draft": DraftTrainingConfig,
    "train medusa": MedusaTrainingConfig,
    "train medusa2": Medusa2TrainingConfig,
    "train layerskip": LayerSkipTrainingConfig,
    "probe": ProbeConfig,
}
EXAMPLES = sorted([*(FOLDER / "train").glob("*.yaml"), *FOLDER.glob("probe*.yaml")])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_is_valid_for_the_command_it_names(path: Path) -> None:
    named = re.search(rf"^# outrider ([a-z0-9 ]+) examples/\S*{re.escape(path.name)}", path.read_text(), re.MULTILINE)
    assert named is not None, "its first lines say how to use it"
    read_settings(path, CLASSES[named.group(1)])
