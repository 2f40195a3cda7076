"""A trained target as a plain transformers folder."""

import shutil
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedModel

from workers.models.export import TOKENIZER_FILES
from workers.models.loader import model_source

__all__ = ["save_model"]


def save_model(model: PreTrainedModel, ref: str, folder: Path) -> None:
    """Weights and configuration of `model`, and the tokenizer of `ref`, the model that it was."""
    model.save_pretrained(folder)
    source = model_source(ref)
    origin = Path(source["pretrained_model_name_or_path"])
    if "gguf_file" in source or not origin.is_dir():
        AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
        return
    for pattern in TOKENIZER_FILES:
        for path in origin.glob(pattern):
            shutil.copy2(path, folder)
