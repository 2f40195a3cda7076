"""Starts servers as forks of one process that has imported everything: seconds become tenths.

The fork is taken before any of them has a thread, a socket or a model, so that nothing is shared but read-only pages.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import yaml

from benchmarks.faults.processes import kill
from tests.integration.processes import START_TIMEOUT_S, Server

__all__ = ["Forks"]


class Forks:
    """A context manager: what it started ends with it."""

    def __init__(self, folder: Path, *modules: str) -> None:
        """`modules`: those that are started later, each with a `main` that prints a line of JSON when it serves."""
        self._folder = folder
        self._servers: list[Server] = []
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.forking", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def start(self, module: str, config: Mapping[str, Any], port: int = 0) -> Server:
        """`main` of the module with --config FILE --port PORT; returns when it serves."""
        return self.start_all([(module, config)], port)[0]

    def start_all(self, wanted: list[tuple[str, Mapping[str, Any]]], port: int = 0) -> list[Server]:
        """Side by side."""
        begun = [self._fork(module, config, port) for module, config in wanted]
        servers = [_started(process, out) for process, out in begun]
        self._servers += servers
        return servers

    def _fork(self, module: str, config: Mapping[str, Any], port: int) -> tuple[psutil.Process, Path]:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        path = self._folder / f"{module.rsplit('.', 2)[-2]}-{time.monotonic_ns()}.yaml"
        path.write_text(yaml.safe_dump(dict(config)))
        out = path.with_suffix(".out")
        out.touch()
        json.dump([module, str(path), str(port), str(out)], self._parent.stdin)
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        return psutil.Process(int(self._parent.stdout.readline())), out

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            kill(server.process)
        self._parent.communicate(timeout=START_TIMEOUT_S)  # the end of its input ends it


def _started(process: psutil.Process, out: Path) -> Server:
    deadline = time.monotonic() + START_TIMEOUT_S
    while "\n" not in (said := out.read_text()):
        log = out.with_suffix(".log")
        assert process.is_running(), f"it did not start: {log.read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"{out.name}: it does not start"
        time.sleep(0.02)
    info = json.loads(said.splitlines()[0])
    return Server(process, info["address"], info)


def _serve(module: str, config: str, port: str, out: str) -> None:
    """In the child."""
    with open(out, "w") as stdout, Path(out).with_suffix(".log").open("w") as stderr, open(os.devnull) as stdin:
        for stream, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(stream.fileno(), number)
    sys.argv = [module, "--config", config, "--port", port]
    import_module(module).main()


def _main() -> None:
    for module in sys.argv[1:]:
        import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(*order)
            finally:
                os._exit(1)
        print(pid, flush=True)  # noqa: T201


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    _main()
