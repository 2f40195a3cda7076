"""Checks that tests call after every step."""

__all__ = ["require"]


def require(condition: bool, message: str) -> None:
    """Raise `AssertionError`, also under `python -O`."""
    if not condition:
        raise AssertionError(message)
