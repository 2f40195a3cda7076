"""Text from the command line and from standard input, which may be bytes that are no text."""

import sys

from cluster.cli.output import BAD_INPUT, fail

__all__ = ["check_text", "read_standard_input"]

# Python passes a byte of an argument that it cannot decode on as U+DC00 + byte (PEP 383).
_ESCAPED_BYTE = 0xDC00


def check_text(name: str, text: str | None) -> None:
    """Fail with one line when `text` cannot go out as UTF-8; `name` is what the user knows it by."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        what = f"byte {code - _ESCAPED_BYTE:#04x}" if 0xDC80 <= code <= 0xDCFF else f"surrogate {code:#06x}"
        raise fail(f"{name}: not valid UTF-8: {what} at character {error.start}", BAD_INPUT) from None


def read_standard_input() -> str:
    """All of it, decoded as the locale says."""
    if sys.stdin is None:
        raise fail("standard input: it is closed", BAD_INPUT)
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        encoding = error.encoding.upper()
        where = f"byte {error.object[error.start]:#04x} at byte {error.start}"
        raise fail(f"standard input: not valid {encoding}: {where}", BAD_INPUT) from None
    check_text("standard input", text)
    return text
