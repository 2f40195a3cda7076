"""Fixtures of the SDK tests."""

from collections.abc import Iterator

import pytest
from outrider.testing import FakeClock, FakeServer

from tests.unit.client.callers import CALLERS, Caller


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=list(CALLERS))
def caller(request: pytest.FixtureRequest) -> Caller:
    return CALLERS[request.param]
