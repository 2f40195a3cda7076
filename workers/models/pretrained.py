"""Reads transformers models by hub id, folder or GGUF file, and says in words what is wrong with one."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from workers.core.errors import ConfigurationError, NotFoundError

__all__ = ["model_source", "read_config", "read_model"]

SHOWN = 3  # missing weights that a message names


def model_source(ref: str) -> dict[str, Any]:
    """Arguments of `from_pretrained` for a hub id, a folder or a GGUF file."""
    path = Path(ref)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise NotFoundError(f"model {ref!r}: there is no such GGUF file")
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if path.is_dir() and not (path / "config.json").is_file():
        raise NotFoundError(f"model {ref!r}: the folder has no config.json; give a transformers folder or a .gguf file")
    if not path.is_dir() and path.parent != Path() and path.parent.is_dir():
        raise NotFoundError(f"model {ref!r}: there is no such folder in {path.parent}")
    return {"pretrained_model_name_or_path": ref}


def read_config(ref: str) -> Any:
    """transformers' settings of the text model `ref`; `NotFoundError` where there are none."""
    try:
        return AutoConfig.from_pretrained(**model_source(ref)).get_text_config()
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"model {ref!r} cannot be read: it is neither a transformers folder, a .gguf file nor a hub id that can be "
            f"reached from here ({str(error).splitlines()[0]})"
        ) from error


def read_model(ref: str, dtype: torch.dtype, **options: Any) -> PreTrainedModel:
    """The causal LM `ref` with all of its weights; `options` as for `from_pretrained`.

    Raises `NotFoundError` where there is none, `ConfigurationError` for weights that are damaged, of other sizes or
    missing: transformers would go on with random numbers.
    """
    read_config(ref)
    try:
        model: PreTrainedModel
        model, found = AutoModelForCausalLM.from_pretrained(
            **model_source(ref), dtype=dtype, output_loading_info=True, **options
        )
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigurationError(f"model {ref!r}: its weights cannot be read ({first})") from error
    missing = sorted(found["missing_keys"])
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise ConfigurationError(f"model {ref!r} is not whole: it has no {', '.join(missing[:SHOWN])}{more}")
    return model
