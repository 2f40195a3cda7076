"""The reader of YAML files, and of JSON, which is YAML: a key that is given twice is refused."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from cluster.config.explain import explain
from cluster.config.text_file import name_of, read_text
from workers.core.errors import ConfigurationError
from workers.core.settings import MAX_BITS, Settings
from workers.core.shown import printable, shown

__all__ = ["parse_mapping", "read_mapping", "read_settings"]

MAX_BYTES = 2**20  # a ConfigMap cannot be larger
MAX_VALUES = 200_000  # with everything that aliases repeat: nine lines of them can stand for a thousand million
MAX_PROBLEM = 600  # characters of what the parser says

Model = TypeVar("Model", bound=Settings)


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not enforce: a mapping has each key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # PyYAML refuses it
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown(key)} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_settings(path: Path, model: type[Model]) -> Model:
    """Raises `ConfigurationError` with the file, the key, the bad value and what is allowed."""
    allowed = ", ".join(model.model_fields)
    document = read_mapping(path, f"a mapping of settings is expected; allowed: {allowed}")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"{name_of(path)}:\n{explain(error, model)}") from None


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """A file's content; raises `ConfigurationError`, which says what is `expected` where it is no mapping."""
    return parse_mapping(read_text(path, MAX_BYTES), name_of(path), expected)


def parse_mapping(text: str, where: str, expected: str) -> dict[str, Any]:
    """As `read_mapping`, of text that `where` names."""
    try:
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506  # a SafeLoader
        _count(document, {}, "")
    except yaml.YAMLError as error:
        problem = printable(str(error), MAX_PROBLEM, keep="\n")
        raise ConfigurationError(f"{where}: is not valid YAML: {problem}") from error
    except RecursionError:
        raise ConfigurationError(f"{where}: is not valid YAML: it is nested too deeply") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    except Exception as error:  # PyYAML lets through what fails in it for values that their tag does not allow
        problem = printable(str(error))
        raise ConfigurationError(f"{where}: is not valid YAML: a value does not fit its type ({problem})") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{where}: {expected}")
    return document


def _count(value: Any, known: dict[int, int], where: str) -> int:
    """How many values these are, those of aliases as often as they are named. `known`: numbers of what was seen."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ConfigurationError(f"{where.strip('.')}: the number {shown(value)} is out of all bounds")
    if not isinstance(value, dict | list | tuple | set):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_VALUES  # where it holds itself
        keys = sum(_count(one, known, f"{where}.key") for one in value) if isinstance(value, dict) else 0
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        known[id(value)] = 1 + keys + sum(_count(one, known, f"{where}.{_word(key)}") for key, one in inner)
    if known[id(value)] > MAX_VALUES:
        raise ConfigurationError(f"its aliases stand for more than {MAX_VALUES} values")
    return known[id(value)]


def _word(key: object) -> str:
    return printable(key if isinstance(key, str) else shown(key), 40)
