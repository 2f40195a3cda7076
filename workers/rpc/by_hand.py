"""Runs one engine's server from the command line: `python -m workers.draft.server --config drafter.yaml`."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from workers.core.errors import OutriderError, UnavailableError

__all__ = ["EngineServer", "run_by_hand"]

DRAIN_S = 10.0
HEALTH_POLL_S = 0.25
FAREWELL_S = 1.0  # for the answers of a failed engine to reach their callers
LOST = 3  # exit status of a server whose tensor-parallel group has lost a rank

Config = TypeVar("Config", bound=BaseModel)


class EngineServer(Protocol):
    """What verifier and drafter servers have in common."""

    async def start(self, host: str, port: int) -> str: ...

    async def drain(self, timeout_s: float) -> bool: ...

    async def stop(self) -> None: ...

    def check_ranks(self) -> None: ...

    def info(self) -> dict[str, object]: ...


def run_by_hand(role: str, config_type: type[Config], make: Callable[[Config, str, int], EngineServer]) -> None:
    """Serve until SIGTERM or SIGINT; one JSON line with the address says that it serves.

    `make(config, id, incarnation)` loads and builds the server. Errors are one line on stderr and exit status 2;
    the loss of a rank of its tensor-parallel group is one line and exit status 3.
    """
    parser = argparse.ArgumentParser(description=f"Run one {role} by hand.")
    parser.add_argument(
        "--config", type=Path, required=True, help=f"YAML file with the fields of {config_type.__name__}"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    arguments = parser.parse_args()
    logging.basicConfig(level=arguments.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        config = config_type.model_validate(yaml.safe_load(arguments.config.read_text()))
        incarnation = time.time_ns()
        server = make(config, f"{role}-{incarnation:x}", incarnation)
        asyncio.run(_serve(server, arguments.host, arguments.port))
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        _refuse(f"{arguments.config}: {'; '.join(problems)}")
    except (OutriderError, OSError, yaml.YAMLError) as error:
        _refuse(f"{arguments.config}: {error}")


async def _serve(server: EngineServer, host: str, port: int) -> None:
    address = await server.start(host, port)
    sys.stdout.write(json.dumps({"address": address, **server.info()}) + "\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await _until(stop, server)
    await server.drain(DRAIN_S)
    await server.stop()


async def _until(stop: asyncio.Event, server: EngineServer) -> None:
    """Return when `stop` is set. A server that has lost a rank ends the process: there is nobody to replace it."""
    while not stop.is_set():
        try:
            server.check_ranks()
        except UnavailableError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
            await asyncio.sleep(FAREWELL_S)
            os._exit(LOST)  # threads of a broken group may wait for ever
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), HEALTH_POLL_S)


def _refuse(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.exit(2)
