"""Writes models as plain transformers folders, which vLLM, TensorRT-LLM and everyone else load as they are."""

import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.core.folders import replacing
from workers.models.draft_checkpoint import DraftCheckpoint
from workers.models.pretrained import model_source, read_config, read_model
from workers.models.tensor_file import saving

__all__ = ["export_draft", "save_model", "stored_dtype"]

TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "*.model", "chat_template*")


def export_draft(ref: str, folder: Path, base: str | None = None) -> None:
    """The assembled model in half precision, with the base's tokenizer files; the whole vocabulary, so any server
    can load it (a reduced one only makes the draft cheaper here). The folder appears whole or not at all.

    Raises `NotFoundError` without the base, `ConfigurationError` when `folder` is taken, `OSError` when it cannot be
    written.
    """
    checkpoint = DraftCheckpoint.read(ref)
    if checkpoint is None:
        raise ConfigurationError(f"{ref!r} is not a draft checkpoint: it has no draft.json")
    if folder.name in ("", ".."):
        raise ConfigurationError(f"{str(folder)!r} has no name of its own; name a new folder")
    if folder.is_file() or (folder.exists() and any(folder.iterdir())):
        raise ConfigurationError(f"{str(folder)!r} is not empty; choose a new folder")
    model = read_model(base or checkpoint.base, torch.float16)
    head = model.get_output_embeddings()
    checkpoint.apply(ref, model)
    model.set_output_embeddings(head)
    with replacing(folder) as fresh:
        save_model(model, base or checkpoint.base, fresh)


def stored_dtype(ref: str) -> torch.dtype:
    """What the weights of `ref` are stored in; training keeps them in fp32 only while it lasts."""
    dtype = getattr(read_config(ref), "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else torch.float32


def save_model(model: PreTrainedModel, ref: str, folder: Path) -> None:
    """Weights and configuration of `model`, and the tokenizer of `ref`, the model that it was.

    Raises `OSError` when they cannot be written.
    """
    with saving(folder):
        model.save_pretrained(folder)
    source = model_source(ref)
    origin = Path(source["pretrained_model_name_or_path"])
    if "gguf_file" in source or not origin.is_dir():
        AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
        return
    for pattern in TOKENIZER_FILES:
        for path in origin.glob(pattern):
            shutil.copy2(path, folder)
