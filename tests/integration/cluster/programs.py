"""Programs of the project with a Ray of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from cluster.local import free_port
from tests.integration.cluster.processes import wait_until

__all__ = ["START_S", "STOP_S", "program", "serving"]

START_S = 180.0
STOP_S = 60.0
ROOT = Path(__file__).parents[3]


def fresh_environment() -> dict[str, str]:
    """Without what this test session has set for its own Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@contextmanager
def program(*words: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=sink, stderr=subprocess.STDOUT, env=fresh_environment(), cwd=ROOT
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=STOP_S)


@contextmanager
def serving(config: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """`outrider serve` of `config` on a node of its own, ready; with its port and what it prints."""
    document = yaml.safe_load(config.read_text())
    document["http_options"]["port"] = free_port()
    del document["applications"][0]["args"]["draft"]["ray_actor_options"]["resources"]  # its Ray has one node
    own, output, port = folder / "own.yaml", folder / "output", free_port()
    own.write_text(yaml.safe_dump(document))
    with program("-m", "cluster.cli", "serve", str(own), "--port", str(port), output=output) as process:
        wait_until(lambda: "Ready:" in output.read_text() or process.poll() is not None, START_S)
        assert f"Ready: 127.0.0.1:{port}" in output.read_text(), output.read_text()
        yield process, port, output
