"""Consoles, and how failures reach the user: one line on stderr and an exit code.

2 = the input was wrong (arguments, configuration, request), 1 = it failed all the same.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from outrider import errors
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.markup import escape

from cluster.config.explain import explain
from cluster.demo.model import ModelUnavailableError
from cluster.local import StartError
from workers.core.errors import (
    ConfigurationError,
    IncompatibleError,
    InvalidRequestError,
    NotFoundError,
    OutriderError,
    RefusedError,
)
from workers.core.shown import printable

__all__ = [
    "BAD_INPUT",
    "FAILURE",
    "check_output",
    "err_console",
    "fail",
    "friendly_errors",
    "out_console",
    "plain",
]

MAX_LINE = 2500  # characters of what is printed of one line of a message
MAX_LINES = 60
PIPE_COLUMNS = 200
FAILURE = 1
BAD_INPUT = 2
_BAD_INPUT_ERRORS = (
    ConfigurationError,
    IncompatibleError,
    InvalidRequestError,
    NotFoundError,
    RefusedError,
    errors.AuthenticationError,
    errors.ConfigurationError,
    errors.InvalidRequestError,
    errors.NotFoundError,
    errors.RefusedError,
)
_FAILURES = (OutriderError, errors.OutriderError, StartError, ModelUnavailableError, OSError)


def out_console() -> Console:
    """A file or a pipe has no width: 80 columns would break ids that somebody searches for."""
    unbounded = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=PIPE_COLUMNS if unbounded else None)


def err_console() -> Console:
    return Console(stderr=True, highlight=False)


def plain(text: str) -> str:
    """Others' text for a console that reads markup: printable, bounded, and taken as it is."""
    return escape(printable(text, MAX_LINE))


def fail(message: str, code: int) -> typer.Exit:
    """Print the message, printable and of bounded length, and return the exit to raise."""
    lines = [printable(line, MAX_LINE) for line in message.split("\n")]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more"]
    text = escape("\n".join(lines))
    err_console().print(f"[bold red]error:[/] {text}", soft_wrap=True)
    return typer.Exit(code)


def check_output(path: Path | None, option: str) -> None:
    """Fail before the work, not behind it, where the file that `option` names could not be written."""
    if path is None:
        return
    if path.is_dir():
        raise fail(f"{option}: {path} is a folder; name a file", BAD_INPUT)
    if not path.parent.is_dir():
        raise fail(f"{option}: there is no folder {path.parent}", BAD_INPUT)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise fail(f"{option}: {path} cannot be written", BAD_INPUT)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Turn every error that a user can act on into one line; programming errors keep their traceback."""
    try:
        yield
    except _BAD_INPUT_ERRORS as error:
        raise fail(str(error), BAD_INPUT) from None
    except ValidationError as error:  # of settings that were made from the user's
        raise fail(f"settings that cannot work ({error.title}): {explain(error, BaseModel)}", BAD_INPUT) from None
    except _FAILURES as error:
        raise fail(str(error), FAILURE) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
