"""A remote proposer of its own for each test."""

from collections.abc import Iterator

import pytest

from tests.unit.proposers.driver import remote_proposer
from workers.proposers.remote import RemoteProposer


@pytest.fixture
def proposer() -> Iterator[RemoteProposer]:
    proposer = remote_proposer()
    yield proposer
    proposer.shutdown()
