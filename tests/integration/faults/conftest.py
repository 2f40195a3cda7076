"""One rig for all tests of this folder; each leaves it whole and at rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.faults.rig import Rig, open_rig, wait_until
from tests.integration.open_plane import open_plane as open_plane


@pytest.fixture(scope="package")
def shared_rig(
    open_plane: None, tiny_target: Path, tiny_draft: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    with open_rig(tiny_target, tiny_draft, tmp_path_factory.mktemp("rig")) as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig) -> Iterator[Rig]:
    yield shared_rig
    shared_rig.mend()
    wait_until(shared_rig.at_rest, "no requests, sessions and blocks in use")
