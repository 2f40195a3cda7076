"""Answers of the tiny model, as `outrider train data` writes them."""

import json
from collections.abc import Iterable
from pathlib import Path

from workers.core.config import ModelConfig
from workers.training.data import generate_data
from workers.training.data_config import DataConfig

__all__ = ["tiny_answers"]


def tiny_answers(target: Path, folder: Path, prompts: Iterable[str], max_tokens: int) -> Path:
    """Greedy answers to `prompts`; the folder that holds them."""
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    generate_data(
        DataConfig(
            model=ModelConfig(model=str(target), dtype="float32"),
            prompts=path,
            output=folder / "data",
            max_tokens=max_tokens,
            temperatures=(0.0,),
        )
    )
    return folder / "data"
