"""Fixtures for all tests: the tiny model pair, built once. torch is imported only where a test needs it."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny matrices: threads only get into each other's way
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is there for tests, and without a network it is waited for

settings.register_profile(
    "outrider", deadline=None, max_examples=50
)  # how long an example takes depends on the machine
settings.load_profile("outrider")


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny target model."""
    from workers.models.tiny import build_tiny_model

    return build_tiny_model(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def tiny_draft(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path) -> Path:
    """Folder of a draft model that agrees with the tiny target now and then."""
    from workers.models.tiny import build_tiny_draft

    return build_tiny_draft(tmp_path_factory.mktemp("draft"), tiny_target)
