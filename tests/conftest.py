"""Fixtures for all tests: the tiny model pair, built once."""

from pathlib import Path

import pytest
import torch

from workers.models.tiny import build_tiny_draft, build_tiny_model

torch.set_num_threads(1)  # tiny matrices: threads only get into each other's way


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny target model."""
    return build_tiny_model(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def tiny_draft(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path) -> Path:
    """Folder of a draft model that agrees with the tiny target now and then."""
    return build_tiny_draft(tmp_path_factory.mktemp("draft"), tiny_target)
