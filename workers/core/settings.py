"""The base of every settings model: frozen, unknown keys are refused, and values are what they look like."""

import math
import unicodedata
from collections.abc import Hashable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

__all__ = ["MAX_BITS", "Settings", "check_text"]

MAX_TEXT = 4096  # characters; the longest path that Linux takes
MAX_BITS = 64  # of a whole number
_NOT_IN_TEXT = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control and format characters, surrogates, separators of lines


class Settings(BaseModel):
    """Beyond what each field says: no true where a number is meant, no NaN, no infinity, no whole number beyond 64
    bits, no text that is blank, endless or has control characters. Values are not repeated: they may be secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, info: ValidationInfo) -> Any:
        annotation: Any = cls.model_fields[str(info.field_name)].annotation
        kinds = _kinds(annotation)
        if not any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds):
            _check(value, kinds)
        elif get_origin(annotation) is dict and isinstance(value, dict):
            _check_all(value, frozenset({str}))  # the models in it check themselves
        return value


@lru_cache
def _kinds(annotation: Hashable) -> frozenset[Any]:
    """The types at the ends of an annotation: of `dict[str, tuple[int, ...]] | None` str, int and None."""
    inner = get_args(annotation)
    return frozenset[Any]().union(*map(_kinds, inner)) if inner else frozenset({annotation})


def _check(value: Any, kinds: frozenset[Any]) -> None:
    """Raises `ValueError`. Where anything may stand, texts may have several lines."""
    free = Any in kinds
    if isinstance(value, bool):
        if not free and bool not in kinds and kinds & {int, float}:
            raise ValueError(f"a number is needed, not {str(value).lower()}")
    elif isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ValueError(f"the number is out of all bounds: it has {value.bit_length()} bits")
    elif isinstance(value, float):
        if free and not math.isfinite(value):
            raise ValueError("a finite number is needed")
    elif isinstance(value, str):
        if free:
            _check_free(value)
        elif kinds & {str, Path}:
            check_text(value, needed=Path in kinds)
    elif isinstance(value, dict):
        _check_all(value, kinds)
        _check_all(value.values(), kinds)
    elif isinstance(value, list | tuple | set | frozenset):
        _check_all(value, kinds)


def _check_all(values: Iterable[Any], kinds: frozenset[Any]) -> None:
    for value in values:
        _check(value, kinds)


def check_text(text: str, *, needed: bool) -> None:
    """Raises `ValueError` for what no name or path may be; an empty text is fine where none is `needed`."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"a text of at most {MAX_TEXT} characters is needed; it has {len(text)}")
    if not text.strip() and (text or needed):
        raise ValueError("the text is blank")
    for place, one in enumerate(text):
        if unicodedata.category(one) in _NOT_IN_TEXT:
            raise ValueError(f"character {place + 1} is U+{ord(one):04X}: control characters and the like are refused")


def _check_free(text: str) -> None:
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise ValueError("the text has a NUL character or half a surrogate pair")
