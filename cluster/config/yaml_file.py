"""Reads one settings model from a YAML file."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from cluster.config.explain import explain
from workers.core.errors import ConfigurationError
from workers.core.settings import Settings

__all__ = ["read_settings"]

Model = TypeVar("Model", bound=Settings)


def read_settings(path: Path, model: type[Model]) -> Model:
    """Raises `ConfigurationError` with the file, the key, the bad value and what is allowed."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a mapping of settings is expected; allowed: {', '.join(model.model_fields)}")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(f"{path}:\n{explain(error, model)}") from None
