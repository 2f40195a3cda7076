"""Replicas without an internal token, whatever other tests of this session have put into the environment."""

import os
from collections.abc import Iterator

import pytest

from workers.rpc.internal_plane import TOKEN_VARIABLE

__all__ = ["open_plane"]


@pytest.fixture(scope="package", autouse=True)
def open_plane() -> Iterator[None]:
    """A folder's conftest imports it: its tests call replicas directly."""
    token = os.environ.pop(TOKEN_VARIABLE, None)
    yield
    if token is not None:
        os.environ[TOKEN_VARIABLE] = token
