"""A disk that is full is an `OSError` that names the file, and the next run goes on."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.fakes.answers import tiny_answers
from workers.models.export import export_draft
from workers.training.draft.config import DraftTrainingConfig
from workers.training.draft.train import train_draft
from workers.training.optimizer_config import OptimizerConfig


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def answers(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_answers(tiny_target, tmp_path_factory.mktemp("answers"), (f"number {n}" for n in range(8)), 8)


def config(tiny_target: Path, answers: Path, output: Path) -> DraftTrainingConfig:
    optimizer = OptimizerConfig(max_steps=6, epochs=100, batch_size=2, warmup_steps=1, save_every=4)
    return DraftTrainingConfig(
        target=str(tiny_target), data=answers, output=output, layers=(0,), vocabulary_size=None, optimizer=optimizer
    )


@pytest.fixture(scope="module")
def trained(tiny_target: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "draft"
    train_draft(config(tiny_target, answers, output))
    return output


@pytest.mark.parametrize(("size", "name"), [(40_000, "model.safetensors"), (200_000, "checkpoint-4")])
def test_while_a_checkpoint_is_written(
    tiny_target: Path, answers: Path, trained: Path, tmp_path: Path, size: int, name: str
) -> None:
    settings = config(tiny_target, answers, tmp_path / "draft")
    with pytest.raises(OSError, match=f"{name}.* cannot be written"), longest_file(size):
        train_draft(settings)
    assert not settings.output.exists()
    train_draft(settings)
    whole, again = (load_file(folder / "draft.safetensors") for folder in (trained, settings.output))
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_while_the_output_is_written(tiny_target: Path, answers: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, answers, tmp_path / "draft")
    metrics = train_draft(settings)
    whole = load_file(settings.output / "draft.safetensors")
    shutil.rmtree(settings.output)
    with pytest.raises(OSError, match=r"draft\.safetensors cannot be written"), longest_file(40_000):
        train_draft(settings)
    assert [path.name for path in tmp_path.iterdir()] == ["draft.checkpoints"]
    assert train_draft(settings) == metrics
    again = load_file(settings.output / "draft.safetensors")
    assert all(torch.equal(whole[key], again[key]) for key in whole), "trained to its end, and not beyond it"


def test_while_a_draft_is_exported(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be written"), longest_file(40_000):
        export_draft(str(trained), tmp_path / "plain")
    assert list(tmp_path.iterdir()) == []
