"""Around a training run: its checkpoints, where it and its data came from, what it ended with.

The folder of checkpoints holds the settings and `origin.json`: the provenance of the first start, the data with its
hashes, and each resumption. It is written before training, and goes into the output at the end.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import xxhash
from pydantic import ValidationError

from workers.core.errors import ConfigurationError
from workers.core.folders import write_whole
from workers.core.provenance import of_a_start, provenance
from workers.training.answers import HIDDEN, LINES
from workers.training.data_provenance import read_data_provenance
from workers.training.output_folder import check_output
from workers.training.plots import plot_log
from workers.training.run_settings import RunSettings

__all__ = ["TrainingRun", "last_metrics"]

CONFIG, ORIGIN = "training_config.json", "origin.json"
_CHUNK_BYTES = 1 << 24


class TrainingRun:
    """One start of a training command; made first of all, so that commit and time are those of the start.

    `model`: what is trained from. Raises `ConfigurationError` for a device that is not there and for an output folder
    that cannot be replaced.
    """

    def __init__(self, config: RunSettings, model: str) -> None:
        _check_device(config.optimizer.device)
        check_output(config.output, {"the model": model, **{f"data {path}": path for path in config.data}})
        self._config = config
        self._origin = provenance(config=config.model_dump(mode="json"))

    def open_checkpoints(self) -> Path:
        """The folder beside the output that an interrupted run goes on from.

        Raises `ConfigurationError` when it holds a run with other settings, or on data that has changed since.
        """
        output = self._config.output
        folder = output.with_name(output.name + ".checkpoints")
        data = [_data_origin(path) for path in self._config.data]
        folder.mkdir(parents=True, exist_ok=True)
        self._keep_settings(folder)
        self._origin = _joined(folder, {**self._origin, "data": data, "resumed": []})
        write_whole(folder / ORIGIN, json.dumps(self._origin, indent=2) + "\n")
        return folder

    def write(self, folder: Path, log: Sequence[dict[str, Any]], title: str, **more: Any) -> None:
        """provenance.json and training.png; `more` stands beside the metrics."""
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        origin = {**self._origin, "ended": ended, "metrics": last_metrics(log), **more}
        write_whole(folder / "provenance.json", json.dumps(origin, indent=2) + "\n")
        plot_log(log, folder / "training.png", title)

    def _keep_settings(self, folder: Path) -> None:
        path, settings = folder / CONFIG, self._config
        if not path.exists():
            write_whole(path, settings.model_dump_json(indent=2))
            return
        try:
            earlier = type(settings).model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError:
            earlier = None
        if earlier != settings:
            raise ConfigurationError(
                f"{str(folder)!r} holds checkpoints of a run with other settings: delete it, or choose another output"
            )


def last_metrics(log: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The last validation, without the prefix of its names."""
    last = next(entry for entry in reversed(log) if "eval_loss" in entry)
    return {name.removeprefix("eval_"): value for name, value in last.items() if name.startswith("eval_")}


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("optimizer.device 'cuda': no CUDA device is available here; use 'cpu'")


def _joined(folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
    """The origin of the first start in `folder` with this one as a resumption; `origin` itself where it is the first.

    Folders of before origins were kept have checkpoints only: this start is the first that is known of.
    """
    path = folder / ORIGIN
    again = of_a_start(origin)
    if not path.is_file():
        return {**origin, "resumed": [again] if any(folder.glob("checkpoint-*")) else []}
    try:
        first = json.loads(path.read_text(encoding="utf-8"))
        changed = [_hashes(data) for data in first["data"]] != [_hashes(data) for data in origin["data"]]
        resumed = [*first["resumed"], again]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read ({error}): delete {str(folder)!r}") from None
    if changed:
        raise ConfigurationError(
            f"{str(folder)!r} holds checkpoints of a run on other data: what `data` names has changed since; delete "
            "the folder, or choose another output"
        )
    return {**first, "resumed": resumed}


def _hashes(data: dict[str, Any]) -> tuple[Any, Any]:
    return data["xxh3_128"], data.get("hidden_xxh3_128")


def _data_origin(data: Path) -> dict[str, Any]:
    """Of a folder of answers: hashes, and how they were made. Of a text file: its hash."""
    try:
        if not data.is_dir():
            return {"xxh3_128": _hash(data)}
        hashes = {"xxh3_128": _hash(data / LINES), "hidden_xxh3_128": _hash(data / HIDDEN)}
    except OSError as error:
        raise ConfigurationError(f"data {str(data)!r} cannot be read: {error}") from None
    return {**hashes, "provenance": read_data_provenance(data)}


def _hash(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
