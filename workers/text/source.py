"""Where a tokenizer comes from: a local folder, a GGUF file or the hub."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from workers.core.errors import ConfigurationError, NotFoundError
from workers.text.chat_template import ChatTemplate

__all__ = ["DRAFT_DESCRIPTION", "TokenizerSource", "read_source"]

HUB_FILES = [
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "config.json",
    "generation_config.json",
    "vocab*",
]
DRAFT_DESCRIPTION = "draft.json"  # of a draft checkpoint (`workers.models.draft_checkpoint`)
SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class TokenizerSource:
    """What was read: the tokenizer itself, the chat template if there is one, and end-of-sequence token ids."""

    backend: tokenizers.Tokenizer
    template: ChatTemplate | None
    eos_token_ids: tuple[int, ...]


def read_source(model_ref: str) -> TokenizerSource:
    """Read by hub id, folder or GGUF file; `NotFoundError` or `ConfigurationError` say what is allowed.

    A folder with tokenizer.json (nearly all) is read without loading torch; GGUF files and older formats are
    converted by transformers, which loads it. A draft checkpoint has the tokenizer of its base.
    """
    path = Path(model_ref)
    if (path / DRAFT_DESCRIPTION).is_file():
        return read_source(_base_of(path / DRAFT_DESCRIPTION))
    if path.suffix == ".gguf":
        if not path.is_file():
            raise NotFoundError(f"model {model_ref!r}: there is no such GGUF file")
        return _converted(model_ref, str(path.parent), gguf_file=path.name)
    folder = path if path.is_dir() else _hub_folder(model_ref)
    if (folder / "tokenizer.json").is_file():
        return _from_folder(folder)
    return _converted(model_ref, str(folder))


def _base_of(description: Path) -> str:
    try:
        return str(json.loads(description.read_text(encoding="utf-8"))["base"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigurationError(f"draft checkpoint: {str(description)!r} cannot be read ({error})") from None


def _hub_folder(model_ref: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model_ref, allow_patterns=HUB_FILES))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise NotFoundError(
            f"model {model_ref!r} cannot be read: it is neither a local folder, a .gguf file nor a hub id that can be "
            f"reached from here ({_first_line(error)})"
        ) from error


def _from_folder(folder: Path) -> TokenizerSource:
    try:
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the bindings raise plain Exception
        raise ConfigurationError(f"{folder / 'tokenizer.json'} is not a tokenizer: {_first_line(error)}") from error
    settings = _json(folder / "tokenizer_config.json")
    special = {name: text for name in SPECIAL_NAMES if (text := _token_text(settings.get(name)))}
    generation = _json(folder / "generation_config.json").get("eos_token_id")
    eos = _ids(generation if generation is not None else _json(folder / "config.json").get("eos_token_id"))
    named = backend.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return TokenizerSource(backend, _template(folder, settings, special), _sorted_ids([*eos, *_ids(named)]))


def _template(folder: Path, settings: dict[str, Any], special: dict[str, str]) -> ChatTemplate | None:
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several named ones
        source = next((one["template"] for one in source if one.get("name") == "default"), None)
    return ChatTemplate(source, special) if source else None


def _converted(model_ref: str, folder: str, **arguments: str) -> TokenizerSource:
    from transformers import AutoTokenizer

    try:
        converted = AutoTokenizer.from_pretrained(folder, **arguments)
    except (OSError, ValueError, ImportError) as error:
        raise NotFoundError(f"model {model_ref!r} has no readable tokenizer ({_first_line(error)})") from error
    backend = getattr(converted, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise ConfigurationError(f"model {model_ref!r}: its tokenizer cannot be converted to a tokenizer.json")
    special = {name: str(text) for name in SPECIAL_NAMES if (text := getattr(converted, name, None))}
    source = converted.chat_template
    template = ChatTemplate(source, special) if isinstance(source, str) and source else None
    return TokenizerSource(backend, template, _sorted_ids(_ids(converted.eos_token_id)))


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, {} when the file is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _token_text(value: object) -> str | None:
    """A special token is written as its text or as an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _ids(value: object) -> list[int]:
    if isinstance(value, list):
        return [one for one in value if isinstance(one, int)]
    return [value] if isinstance(value, int) else []


def _sorted_ids(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ids)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
