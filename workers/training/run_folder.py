"""Around a training run: its checkpoints, where its data came from, what it ended with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xxhash

from workers.core.errors import ConfigurationError
from workers.core.provenance import provenance
from workers.core.settings import Settings
from workers.training.plots import plot_log

__all__ = ["checkpoints_of", "data_origins", "last_metrics", "write_origin"]

CONFIG = "training_config.json"


def checkpoints_of(output: Path, config: Settings) -> Path:
    """The folder beside `output` that an interrupted run goes on from; it must be of the same settings."""
    folder = output.with_name(output.name + ".checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    settings = config.model_dump_json(indent=2)
    path = folder / CONFIG
    if path.exists() and path.read_text() != settings:
        raise ConfigurationError(
            f"{str(folder)!r} holds checkpoints of a run with other settings: delete it, or choose another output"
        )
    path.write_text(settings)
    return folder


def last_metrics(log: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The last validation, without the prefix of its names."""
    last = next(entry for entry in reversed(log) if "eval_loss" in entry)
    return {name.removeprefix("eval_"): value for name, value in last.items() if name.startswith("eval_")}


def data_origins(data: Sequence[Path]) -> list[dict[str, Any]]:
    """Of each folder of answers: their hash, and how they were made. Of each text file: its hash."""
    return [_data_origin(path) for path in data]


def _data_origin(data: Path) -> dict[str, Any]:
    if not data.is_dir():
        return {"xxh3_128": xxhash.xxh3_128(data.read_bytes()).hexdigest()}
    digest = xxhash.xxh3_128((data / "answers.jsonl").read_bytes()).hexdigest()
    made = data / "provenance.json"
    return {"xxh3_128": digest, "provenance": json.loads(made.read_text()) if made.is_file() else None}


def write_origin(
    folder: Path, config: Settings, data: list[dict[str, Any]], log: Sequence[dict[str, Any]], title: str, **more: Any
) -> None:
    """provenance.json and training.png."""
    origin = provenance(config=config.model_dump(mode="json"), data=data, metrics=last_metrics(log), **more)
    (folder / "provenance.json").write_text(json.dumps(origin, indent=2) + "\n")
    plot_log(log, folder / "training.png", title)
