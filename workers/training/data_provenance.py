"""provenance.json of a folder of answers: where its first run came from, whose answers they are, and all its runs.

commit, argv, time, versions, ...   of the first run (in folders without `runs`: of the last one)
config                              settings of that run
target_fingerprint, target          which target answers, exactly and in any dtype (`TargetIdentity`)
runs                                commit, time, argv, num_prompts of every run, and the answers that it found
"""

import json
from pathlib import Path
from typing import Any

from workers.core.errors import ConfigurationError
from workers.core.folders import write_whole
from workers.core.provenance import of_a_start, provenance
from workers.training.data_config import DataConfig

__all__ = ["check_same_data", "read_data_provenance", "record_run"]

FILE = "provenance.json"
_SHARED = ("max_tokens", "temperatures", "seed")  # settings that all answers of a folder have in common


def read_data_provenance(folder: Path) -> dict[str, Any] | None:
    """What `outrider train data` wrote beside its answers; None when there is nothing."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("config"), dict):
        raise ConfigurationError(f"{str(path)!r} is not what `outrider train data` writes")
    return found


def check_same_data(config: DataConfig, fingerprint: str) -> None:
    """Raises `ConfigurationError` when the output folder has answers that these settings would not continue."""
    where = f"{str(config.output)!r} holds answers"
    known = read_data_provenance(config.output)
    if known is None:
        raise ConfigurationError(f"{where} without a {FILE} that says whose they are: choose another output")
    if known.get("target_fingerprint") != fingerprint:
        raise ConfigurationError(
            f"{where} of another target, or of the same one in another dtype: choose another output, or set `model` "
            f"as it was ({known['config'].get('model')})"
        )
    ours = config.model_dump(mode="json")
    different = [
        f"{name} was {known['config'].get(name)}" for name in _SHARED if known["config"].get(name) != ours[name]
    ]
    if different:
        raise ConfigurationError(
            f"{where} of a run with other settings ({', '.join(different)}): choose another output"
        )


def record_run(config: DataConfig, answers: int, **target: Any) -> None:
    """Add this run to the output folder's list; `answers`: how many there are at its start.

    `target`: `target_fingerprint` and `target`, as the file has them.
    """
    origin = provenance(config=config.model_dump(mode="json"))
    known = (read_data_provenance(config.output) if answers else None) or {**origin, "runs": []}
    earlier = known.get("runs", [of_a_start(known)])
    run = {**of_a_start(origin), "num_prompts": config.num_prompts, "answers": answers}
    text = json.dumps({**known, **target, "runs": [*earlier, run]}, indent=2)
    write_whole(config.output / FILE, text + "\n")
