"""The gateway's own fixtures."""

from tests.unit.gateway.conftest import tokenizer

__all__ = ["tokenizer"]
