"""Reads the YAML file that `outrider serve` and `serve run` both take.

It is Serve's own format; our part is `args` of the application whose
import_path is `cluster.app:build`. Serve ignores unknown keys at its top level,
so they are refused here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ValidationError

from cluster.config.arguments import OutriderArgs
from cluster.config.explain import explain, unknown_key
from workers.core.errors import ConfigurationError

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

__all__ = ["Config", "IMPORT_PATH", "load_config"]

IMPORT_PATH = "cluster.app:build"


@dataclass(frozen=True)
class Config:
    """A valid file. `serve_config` is all of it, as Serve takes it; `args` the part that is ours."""

    path: Path
    application: str
    args: OutriderArgs
    serve_config: "ServeDeploySchema"


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not enforce: a mapping has each key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_config(path: Path | str) -> Config:
    """Read and check. Raises `ConfigurationError` with the file, the key, the bad value and what is allowed."""
    from ray.serve.schema import ServeDeploySchema  # takes a while

    path = Path(path)
    document = _read(path)
    _check_keys(document, ServeDeploySchema, path, ())
    index, application = _our_application(document, path)
    prefix = ("applications", str(index), "args")
    try:
        args = OutriderArgs.model_validate(application.get("args") or {})
    except ValidationError as error:
        raise _wrong(path, explain(error, OutriderArgs, prefix)) from None
    try:
        serve_config = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        raise _wrong(path, explain(error, ServeDeploySchema)) from None
    return Config(path, str(application.get("name", "default")), args, serve_config)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506  # a SafeLoader
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a mapping is needed at the top (Serve's format, with `applications`)")
    return document


def _our_application(document: Mapping[str, Any], path: Path) -> tuple[int, Mapping[str, Any]]:
    """The application of ours, and where it stands in the list."""
    applications = document.get("applications")
    if not isinstance(applications, list) or not all(isinstance(one, dict) for one in applications):
        raise _wrong(path, "applications: a list of applications is needed")
    ours = [(i, one) for i, one in enumerate(applications) if one.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise _wrong(path, f"applications: exactly one needs `import_path: {IMPORT_PATH}`, found {len(ours)}")
    index, application = ours[0]
    if "route_prefix" in application and application["route_prefix"] is None:
        raise _wrong(path, f"applications.{index}.route_prefix: null would hide the application from gRPC; use /")
    return index, application


def _check_keys(value: object, model: type[BaseModel], path: Path, where: tuple[str, ...]) -> None:
    """Refuse unknown keys of Serve's own settings, wherever Serve would ignore them."""
    if not isinstance(value, dict):
        return  # Serve's own validation says what is needed
    for key, inner in value.items():
        field = model.model_fields.get(str(key))
        if field is None:
            raise _wrong(path, f"{'.'.join([*where, str(key)])}: {unknown_key(str(key), list(model.model_fields))}")
        kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
        nested = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if nested is None:
            continue
        entries = enumerate(inner) if isinstance(inner, list) else [(None, inner)]
        for index, entry in entries:
            _check_keys(entry, nested, path, (*where, str(key), *(() if index is None else (str(index),))))


def _wrong(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError("\n".join(f"{path}: {line}" for line in message.splitlines()))
