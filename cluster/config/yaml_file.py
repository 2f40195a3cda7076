"""The reader of YAML files, and of JSON, which is YAML: a key that is given twice is refused."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from cluster.config.explain import explain
from workers.core.errors import ConfigurationError
from workers.core.settings import Settings

__all__ = ["parse_mapping", "read_mapping", "read_settings"]

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
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
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
        raise ConfigurationError(f"{path}:\n{explain(error, model)}") from None


def read_mapping(path: Path, expected: str) -> dict[str, Any]:
    """A file's content; raises `ConfigurationError`, which says what is `expected` where it is no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    return parse_mapping(text, str(path), expected)


def parse_mapping(text: str, where: str, expected: str) -> dict[str, Any]:
    """As `read_mapping`, of text that `where` names."""
    try:
        document = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where}: is not valid YAML: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{where}: is not valid YAML: it is nested too deeply") from None
    except Exception as error:  # PyYAML lets through what fails in it for values that their tag does not allow
        raise ConfigurationError(f"{where}: is not valid YAML: a value does not fit its type ({error})") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{where}: {expected}")
    return document
