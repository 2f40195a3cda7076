"""Starts an engine's server in a process of its own, as `run_by_hand` speaks it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from workers.core.errors import UnavailableError

__all__ = ["server_process"]

END_S = 20.0


@contextmanager
def server_process(
    role: Literal["draft", "verifier"], config: BaseModel, module: str | None = None
) -> Iterator[dict[str, Any]]:
    """What the server says of itself (`address` and more); it ends with the block. `module` runs in place of the usual.

    Raises `UnavailableError` with the server's own words when it does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, log_path = Path(folder) / "config.yaml", Path(folder) / "log"
        path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
        command = [sys.executable, "-m", module or f"workers.{role}.server", "--config", str(path)]
        with (
            log_path.open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,  # noqa: S603
        ):
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                process.wait()
                words = log_path.read_text().strip().splitlines() or [f"exit status {process.returncode}"]
                raise UnavailableError(f"the {role} server did not start: {words[-1]}")
            try:
                yield json.loads(line)
            finally:
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
