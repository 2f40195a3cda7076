"""pydantic's findings in words that name the key, the bad value and what is allowed."""

import difflib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from workers.core.errors import ConfigurationError
from workers.core.shown import MAX_SHOWN, printable, shown

__all__ = ["MAX_FINDINGS", "explain", "unknown_key", "validated"]

MAX_FINDINGS = 50
MAX_LINE = 2000  # characters of one; lists of what is allowed are long

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], values: object, where: str) -> Model:
    """`values` as settings; `where` names them in the `ConfigurationError` that says what is wrong with them."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, model, where.split(".") if where else ())) from None


def explain(error: ValidationError, model: type[BaseModel], prefix: Sequence[str] = ()) -> str:
    """One line for each finding, up to a number of them."""
    lines = [printable(line, MAX_LINE) for line in islice(_lines(error, model, prefix), MAX_FINDINGS)]
    if error.error_count() > len(lines):
        lines.append(f"... and {error.error_count() - len(lines)} more")
    return "\n".join(lines)


def unknown_key(key: str, allowed: Sequence[str]) -> str:
    """For a key that is not known: what is, and what was probably meant."""
    close = difflib.get_close_matches(key[:MAX_SHOWN], allowed, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown key{meant}; allowed: {', '.join(sorted(allowed))}" if allowed else "unknown key"


def _lines(error: ValidationError, model: type[BaseModel], prefix: Sequence[str]) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = ".".join([*prefix, *(printable(str(part)) for part in problem["loc"])])
        where = f"{path}: " if path else ""
        if problem["type"] == "extra_forbidden":
            owner = _model_at(model, problem["loc"][:-1])
            allowed = list(owner.model_fields) if owner else []
            yield f"{where}{unknown_key(str(problem['loc'][-1]), allowed)}"
        elif problem["type"] in ("value_error", "missing"):
            yield f"{where}{problem['msg'].removeprefix('Value error, ')}"
        else:
            yield f"{where}{problem['msg']} (got {shown(problem['input'])})"


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The settings that a path of keys leads to."""
    for key in path:
        field = model.model_fields.get(str(key))
        if field is None:
            return None
        kinds = [field.annotation, *get_args(field.annotation)]
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if inner is None:
            return None
        model = inner
    return model
