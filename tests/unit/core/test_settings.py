"""Every field of every settings model, found by their source: numbers are bounded, and what cannot be is refused."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from workers.core.settings import Settings
from workers.core.shown import shown

ROOT = Path(__file__).parents[3]
HUGE = 10**400


def _models() -> list[type[Settings]]:
    for package in ("cluster", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "Settings):" in path.read_text(encoding="utf-8"):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found: list[type[Settings]] = []
    waiting = Settings.__subclasses__()
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        found.append(one)
    return [one for one in found if one.__module__.split(".")[0] in ("cluster", "workers")]


def _fields() -> list[tuple[type[Settings], str, FieldInfo]]:
    return [(model, name, field) for model in _models() for name, field in model.model_fields.items()]


def _leaves(annotation: Any, bounds: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Types at the ends of an annotation, with the constraints that stand beside them."""
    inner = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        own = [one for note in annotation.__metadata__ for one in getattr(note, "metadata", [note])]
        yield from _leaves(inner[0], (*bounds, *own))
    elif inner:
        for one in inner:
            yield from _leaves(one, bounds)
    else:
        yield annotation, bounds


def _types(field: FieldInfo) -> set[Any]:
    return {kind for kind, _ in _leaves(field.annotation)}


def _refusals(model: type[Settings], values: dict[str, Any]) -> set[str]:
    """The keys at which these values are refused."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    return {
        str(problem["loc"][0]) for problem in caught.value.errors() if problem["loc"] and problem["type"] != "missing"
    }


FIELDS = _fields()
NUMBERS = [one for one in FIELDS if _types(one[2]) & {int, float}]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def test_all_are_found() -> None:
    assert len({model for model, _, _ in FIELDS}) > 30
    assert len(NUMBERS) > 100


def test_every_number_has_two_bounds() -> None:
    for model, name, field in NUMBERS:
        for kind, bounds in _leaves(field.annotation):
            if kind in (int, float):
                both = [type(one) for one in (*bounds, *field.metadata)]
                where = f"{model.__name__}.{name}"
                assert {Ge, Gt} & set(both), f"{where} has no least value"
                assert {Le, Lt} & set(both), f"{where} has no largest value"


def _as_given(annotation: Any, value: Any) -> Any:
    """`value` where the annotation has its texts or numbers: alone, in a list, or in a mapping."""
    kinds = {get_origin(one) for one in (annotation, *get_args(annotation))}
    if tuple in kinds:
        return [value]
    return {"x": value} if dict in kinds else value


@pytest.mark.parametrize("value", [True, HUGE, -HUGE, float("nan"), float("inf"), float("-inf")], ids=shown)
def test_no_number_is_true_or_endless(value: Any) -> None:
    for model, name, field in NUMBERS:
        if value is True and bool in _types(field):
            continue
        assert name in _refusals(model, {name: _as_given(field.annotation, value)}), f"{model.__name__}.{name}"


@pytest.mark.parametrize(
    "value", [" ", "a\0b", "a\nb", "a\x1b[31mb", "a\u202eb", "a\u2028b", "\ud800", "x" * 5000], ids=shown
)
def test_no_text_is_blank_or_endless_or_unprintable(value: str) -> None:
    seen = 0
    for model, name, field in FIELDS:
        types = _types(field)
        if types & {str, Path} and Any not in types and not any(_is_model(kind) for kind in types):
            assert name in _refusals(model, {name: _as_given(field.annotation, value)}), f"{model.__name__}.{name}"
            seen += 1
    assert seen > 25


@pytest.mark.parametrize("value", ["a\0b", float("nan"), HUGE, {"x": ["\ud800"]}], ids=shown)
def test_what_may_be_anything_is_json_at_least(value: Any) -> None:
    seen = 0
    for model, name, field in FIELDS:
        if Any in _types(field):
            assert name in _refusals(model, {name: {"key": value}}), f"{model.__name__}.{name}"
            seen += 1
    assert seen > 3


def test_no_text_that_is_needed_is_empty() -> None:
    for model, name, field in FIELDS:
        if _types(field) <= {str, type(None)} and get_origin(field.annotation) is not dict:
            assert name in _refusals(model, {name: ""}), f"{model.__name__}.{name}"


def test_values_are_not_repeated() -> None:
    """They may be secrets, which stand where a hash or a path should."""
    from cluster.security.key_file import KeyEntry

    with pytest.raises(ValidationError) as caught:
        KeyEntry.model_validate({"sha256": "outrider_secret\n"})
    assert all("secret" not in str(problem["msg"]) for problem in caught.value.errors())
