"""What was trained and is kept in the repository: small, whole, and with where it came from."""

import json
from pathlib import Path

import pytest
import yaml

from workers.medusa.checkpoint import HeadsCheckpoint
from workers.models.draft_checkpoint import DraftCheckpoint

ROOT = Path(__file__).parents[2]
CHECKPOINTS = ROOT / "checkpoints"
MADE_BY = {"smollm2-draft": "draft.yaml", "smollm2-medusa": "medusa.yaml"}
MAX_BYTES = 40_000_000


def test_together_they_are_small() -> None:
    files = [path for name in MADE_BY for path in (CHECKPOINTS / name).rglob("*") if path.is_file()]
    assert files
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES


@pytest.mark.parametrize("name", MADE_BY)
def test_provenance_is_the_example_that_makes_it(name: str) -> None:
    origin = json.loads((CHECKPOINTS / name / "provenance.json").read_text())
    assert origin["commit"]
    assert origin["uncommitted_changes"] is False
    example = yaml.safe_load((ROOT / "examples/train" / MADE_BY[name]).read_text())
    assert example["output"] == f"checkpoints/{name}"
    assert _part(origin["config"], example) == example
    assert [data["provenance"]["config"]["output"] for data in origin["data"]] == example["data"]
    assert all(data["provenance"]["uncommitted_changes"] is False for data in origin["data"])


def test_they_belong_to_the_target_of_the_examples() -> None:
    draft = DraftCheckpoint.read(str(CHECKPOINTS / "smollm2-draft"))
    assert draft is not None
    assert draft.base == "models/SmolLM2-135M-Instruct"
    heads = HeadsCheckpoint.read(str(CHECKPOINTS / "smollm2-medusa"))
    assert (heads.hidden_size, heads.vocab_size) == (draft.hidden_size, draft.vocab_size)


def _part(whole: object, shape: object) -> object:
    """`whole`, cut down to the keys that `shape` has."""
    if isinstance(whole, dict) and isinstance(shape, dict):
        return {key: _part(whole[key], value) for key, value in shape.items()}
    return whole
