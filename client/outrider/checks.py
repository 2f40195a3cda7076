"""Light local checks: each takes a field's name and value and returns the value in its final form."""

import reprlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from outrider.errors import InvalidRequestError

__all__ = [
    "bias",
    "choice",
    "count",
    "flag",
    "number",
    "seconds",
    "seed",
    "shown",
    "size",
    "text",
    "texts",
    "token_ids",
]

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1
MAX_SHOWN = 100  # characters of a bad value
E = TypeVar("E", bound=StrEnum)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = MAX_SHOWN


def shown(value: object) -> str:
    """A bad value as a message repeats it: as `repr`, but short, whatever it is."""
    try:
        return _short.repr(value)[:MAX_SHOWN]
    except ValueError:  # Python does not write very long numbers
        return "a number of thousands of digits"


def _wrong(name: str, expected: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: expected {expected}, got {shown(value)} ({type(value).__name__})")


def _integer(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _wrong(name, f"an integer from 0 to {most}", value)
    return value


def number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _wrong(name, "a number that a float can hold", value) from None


def count(name: str, value: object) -> int:
    return _integer(name, value, UINT32_MAX)


def size(name: str, value: object) -> int:
    """A count that the server keeps in 31 bits."""
    return _integer(name, value, INT32_MAX)


def seed(name: str, value: object) -> int:
    return _integer(name, value, UINT64_MAX)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def text(name: str, value: object) -> str:
    """A text that UTF-8, and so the wire, can carry."""
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        surrogate = error.object[error.start]
        raise InvalidRequestError(
            f"{name}: not valid Unicode: the lone surrogate {surrogate!r} at character {error.start} cannot be sent"
        ) from None
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (text(name, value),)
    if not isinstance(value, Sequence):
        raise _wrong(name, "a text or a sequence of texts", value)
    return tuple(text(f"{name}[{i}]", item) for i, item in enumerate(value))


def token_ids(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(name, "a sequence of token ids", value)
    return tuple(_integer(f"{name}[{i}]", item, UINT32_MAX) for i, item in enumerate(value))


def bias(name: str, value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _wrong(name, "a mapping of token ids to numbers", value)
    return {_integer(f"{name} key", key, UINT32_MAX): number(f"{name}[{key}]", item) for key, item in value.items()}


def seconds(name: str, value: object) -> float:
    """A positive time span of at most 49 days (the wire carries milliseconds in 32 bits)."""
    most = UINT32_MAX // 1000
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise _wrong(name, f"a number of seconds above 0 and up to {most}", value)
    return float(value)


def choice(name: str, value: object, kind: type[E]) -> E:
    if not isinstance(value, str) or value not in [member.value for member in kind]:
        raise _wrong(name, "one of " + ", ".join(repr(member.value) for member in kind), value)
    return kind(value)
