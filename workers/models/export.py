"""Writes a draft checkpoint as a plain transformers folder, for vLLM, TensorRT-LLM and everyone else."""

import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.models.draft_checkpoint import DraftCheckpoint
from workers.models.loader import model_source

__all__ = ["export_draft"]

TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "*.model", "chat_template*")


def export_draft(ref: str, folder: Path, base: str | None = None) -> None:
    """The assembled model in half precision, with the base's tokenizer files; the whole vocabulary, so any server
    can load it (a reduced one only makes the draft cheaper here)."""
    checkpoint = DraftCheckpoint.read(ref)
    if checkpoint is None:
        raise ConfigurationError(f"{ref!r} is not a draft checkpoint: it has no draft.json")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"{str(folder)!r} is not empty; choose a new folder")
    source = model_source(base or checkpoint.base)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float16)
    head = model.get_output_embeddings()
    checkpoint.apply(ref, model)
    model.set_output_embeddings(head)
    model.save_pretrained(folder)
    origin = Path(source["pretrained_model_name_or_path"])
    for pattern in TOKENIZER_FILES if origin.is_dir() else ():
        for path in origin.glob(pattern):
            shutil.copy2(path, folder)
