"""Logs without request content: prompts, tokens and answers stay out of them unless the operator asks for them.

Texts of exceptions may hold anything (`KeyError: 'the prompt'`), so a failure is logged with its class and traceback
but without its text. `OUTRIDER_LOG_CONTENT=1` in the environment of a process adds the texts.
"""

import logging
import os
import traceback
from collections.abc import Mapping

__all__ = ["CONTENT_VARIABLE", "content_wanted", "log_failure", "private", "summary"]

CONTENT_VARIABLE = "OUTRIDER_LOG_CONTENT"
# Their texts come from the operating system or an allocator, and are what an operator needs.
_HARMLESS = ("OSError", "MemoryError", "OutOfMemoryError")


def content_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the operator wants request content in the logs."""
    return (os.environ if environ is None else environ).get(CONTENT_VARIABLE) == "1"


def private(text: object, environ: Mapping[str, str] | None = None) -> str:
    """The text for a log line, or a word in its place."""
    return str(text) if content_wanted(environ) else "(text withheld)"


def summary(error: BaseException, environ: Mapping[str, str] | None = None) -> str:
    """One line: class, and text where that is allowed."""
    kind = type(error).__name__
    harmless = any(one.__name__ in _HARMLESS for one in type(error).__mro__)
    return f"{kind}: {error}" if harmless or content_wanted(environ) else kind


def log_failure(
    logger: logging.Logger, text: str, error: BaseException, environ: Mapping[str, str] | None = None
) -> None:
    """Log an unexpected error with where it came from, causes included; source lines are ours, values are not shown."""
    lines, seen, one = list[str](), set[int](), error
    while id(one) not in seen:
        seen.add(id(one))
        frames = "".join(traceback.format_tb(one.__traceback__))
        lines.append(f"{frames}{summary(one, environ)}")
        cause = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
        if cause is None:
            break
        one = cause
    logger.error("%s\n%s", text, "\ncaused by:\n".join(lines))
