"""How the commands reach a server: key and TLS. A key never stands on the command line, which others can read."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import grpc
import typer
from outrider import Client, ConnectionLostError
from outrider.client_core import is_api_key

from cluster.cli.output import BAD_INPUT, FAILURE, err_console, fail, plain
from cluster.config.text_file import read_bytes
from workers.core.errors import ConfigurationError

__all__ = ["ApiKeyFile", "CaFile", "Tls", "connect"]

MAX_BYTES = 2**20
REASON = ", after: "  # as the SDK's log puts it

ApiKeyFile = Annotated[
    Path | None, typer.Option(help="File with the API key; default: the environment's OUTRIDER_API_KEY")
]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt, and check the server's certificate")]
CaFile = Annotated[Path | None, typer.Option("--ca", help="PEM file of the authority to trust; implies --tls")]


@contextmanager
def connect(
    target: str, api_key_file: Path | None = None, *, tls: bool = False, ca: Path | None = None
) -> Iterator[Client]:
    """An open client, whose retries are told on standard error; fails with one line when a file cannot be read."""
    key = None if api_key_file is None else _read("--api-key-file", api_key_file).decode(errors="replace").strip()
    if key == "":
        raise fail(f"--api-key-file: {api_key_file} is empty", BAD_INPUT)
    if key is not None and not is_api_key(key):
        raise fail(f"--api-key-file: {api_key_file} holds more than one key, or none: one line is expected", BAD_INPUT)
    authority = None if ca is None else _read("--ca", ca)
    if authority is not None and b"-----BEGIN CERTIFICATE-----" not in authority:
        raise fail(f"--ca: {ca} has no PEM certificate", BAD_INPUT)
    credentials = grpc.ssl_channel_credentials(authority) if tls or ca is not None else None
    with Client(target, api_key=key, channel_credentials=credentials) as client, _retries_told():
        try:
            yield client
        except ConnectionLostError as error:
            raise fail(f"{error}; does a server run at {target}?", FAILURE) from None


@contextmanager
def _retries_told() -> Iterator[None]:
    """Nobody should wonder whether a command hangs while the SDK waits for its next attempt."""
    logger, handler = logging.getLogger("outrider.retry"), _ToStandardError()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _ToStandardError(logging.Handler):
    """A reason that stays the same is told once."""

    def __init__(self) -> None:
        super().__init__()
        self._told = ""

    def emit(self, record: logging.LogRecord) -> None:
        text, _, reason = record.getMessage().partition(REASON)
        if reason != self._told:
            text, self._told = text + REASON + reason, reason
        err_console().print(f"[dim]{plain(text)}[/]", soft_wrap=True)


def _read(option: str, path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES)
    except ConfigurationError as error:
        raise fail(f"{option}: {error}", BAD_INPUT) from None
