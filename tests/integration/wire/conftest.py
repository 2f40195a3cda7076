"""One verifier and one drafter as real processes, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.open_plane import open_plane as open_plane
from tests.integration.processes import Server, VerifierClient, drafter_process, verifier_process

SPECULATION = {"max_depth": 4, "max_width": 3, "max_nodes": 12, "max_grace_ms": 1000.0, "allow_typical": True}


@pytest.fixture(scope="package")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="package")
def verifier(open_plane: None, tiny_target: Path, logs: Path) -> Iterator[Server]:
    settings = {"kv_cache": {"num_blocks": 256, "block_size": 4}, "speculation": SPECULATION}
    with verifier_process(tiny_target, logs, **settings) as server:
        yield server


@pytest.fixture(scope="package")
def drafter(open_plane: None, tiny_draft: Path, logs: Path) -> Iterator[Server]:
    with drafter_process(tiny_draft, logs, kv_cache={"num_blocks": 512, "block_size": 4}) as server:
        yield server


@pytest.fixture
def client(verifier: Server) -> Iterator[VerifierClient]:
    client = VerifierClient(verifier.address)
    yield client
    client.channel.close()
