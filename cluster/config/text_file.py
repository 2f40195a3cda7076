"""What stands in a file that a user named: of bounded size, text as UTF-8, and every failure in one line."""

from pathlib import Path

from workers.core.errors import ConfigurationError
from workers.core.shown import printable

__all__ = ["MAX_PATH", "name_of", "read_bytes", "read_text"]

MAX_PATH = 300  # characters of a path in a message


def name_of(path: Path | str) -> str:
    """A path as a message names it."""
    return printable(str(path), MAX_PATH)


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Raises `ConfigurationError`; devices and pipes without an end are no danger."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{name_of(path)}: there is no such file") from None
    except OSError as error:
        raise ConfigurationError(f"{name_of(path)}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # the path has a NUL character
        raise ConfigurationError(f"{name_of(path)}: cannot be read: {error}") from None
    if len(content) > most_bytes:
        raise ConfigurationError(f"{name_of(path)}: is too large; at most {most_bytes} bytes are allowed")
    return content


def read_text(path: Path, most_bytes: int) -> str:
    """As `read_bytes`; without a byte order mark."""
    content = read_bytes(path, most_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at byte {error.start}"
        raise ConfigurationError(f"{name_of(path)}: cannot be read: not valid UTF-8: {where}") from error
