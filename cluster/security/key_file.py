"""The file of API keys: names, hashes, limits. It can be a mounted Kubernetes secret.

keys:
  team-a:
    sha256: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
    created: 2026-11-30
    limits: {max_concurrent_requests: 8, tokens_per_minute: 60000}    # what is left out: gateway.tenancy.default_limits
"""

import os
import re
import tempfile
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from cluster.config.explain import explain
from cluster.config.tenancy import KeyLimits
from cluster.config.yaml_file import parse_mapping
from workers.core.errors import ConfigurationError
from workers.core.settings import Settings

__all__ = ["KeyEntry", "KeyFile", "read_keys", "write_keys"]

MAX_KEYS = 10_000  # all are compared on each call
MAX_FILE_BYTES = 16 * 2**20

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
_SHA256 = re.compile(r"[0-9a-f]{64}")


class KeyEntry(Settings):
    """One key. `limits` holds only what differs from the defaults."""

    sha256: str
    created: date | None = None
    limits: dict[str, Any] = Field(default_factory=dict)

    @field_validator("sha256")
    @classmethod
    def _is_a_hash(cls, value: str) -> str:
        if _SHA256.fullmatch(value) is None:  # the value is not repeated: it may be the key itself
            raise ValueError("64 hexadecimal digits are needed: the hash of the key, never the key")
        return value

    @model_validator(mode="after")
    def _limits_are_some(self) -> Self:
        KeyLimits.model_validate(self.limits)
        return self

    def limits_over(self, defaults: KeyLimits) -> KeyLimits:
        return KeyLimits.model_validate(defaults.model_dump() | self.limits)


class KeyFile(Settings):
    keys: dict[KeyName, KeyEntry] = Field(default_factory=dict, max_length=MAX_KEYS)

    @model_validator(mode="after")
    def _each_key_once(self) -> Self:
        seen: dict[str, str] = {}
        for name, entry in self.keys.items():
            if entry.sha256 in seen:
                raise ValueError(f"keys {seen[entry.sha256]} and {name} have the same hash")
            seen[entry.sha256] = name
        return self


def read_keys(path: Path) -> KeyFile:
    """`ConfigurationError` says what is wrong with the file; hashes are not repeated."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8") from None
    try:
        document = parse_mapping(text, str(path), "a mapping with `keys` is needed")
    except ConfigurationError as error:
        if error.__cause__ is None:
            raise
        mark = getattr(error.__cause__, "problem_mark", None)  # its own text would show the line, maybe with a key
        line = "" if mark is None else f" (line {mark.line + 1})"
        problem = getattr(error.__cause__, "problem", None) or "cannot be parsed"
        raise ConfigurationError(f"{path}: neither YAML nor JSON{line}: {problem}") from None
    try:
        return KeyFile.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(
            "\n".join(f"{path}: {line}" for line in explain(error, KeyFile).splitlines())
        ) from None


def write_keys(path: Path, content: KeyFile) -> None:
    """Replace the file in one go, readable by its owner only; a reader sees the old or the new one."""
    text = yaml.safe_dump(content.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:  # mkstemp: mode 0600
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
