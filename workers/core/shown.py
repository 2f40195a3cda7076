"""What others sent, as a message may repeat it: printable, and short.

A message goes to terminals, logs and HTTP/2 trailers. Control characters could forge lines or steer a terminal, and a
megabyte could hide what the message says.
"""

import reprlib

__all__ = ["MAX_SHOWN", "printable", "shown"]

MAX_SHOWN = 120  # characters of a bad value
_BITS_SHOWN = 512  # of a whole number; Python refuses to write very long ones
_CUT = "..."


class _Short(reprlib.Repr):
    """Bounded in width and depth, so that neither megabytes nor values that hold themselves cost anything."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = MAX_SHOWN

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() <= _BITS_SHOWN:
            return super().repr_int(x, level)
        return f"{'-' if x < 0 else ''}about 10**{round((x.bit_length() - 1) * 0.30103)}"


_SHORT = _Short()


def shown(value: object, most: int = MAX_SHOWN) -> str:
    """As `repr`, but never longer than `most` characters and printable throughout; texts are in quotes."""
    return printable(_SHORT.repr(value), most)


def printable(text: str, most: int = MAX_SHOWN, keep: str = "") -> str:
    """A name, a path or a sentence without quotes: escapes for what cannot be printed, but for the characters `keep`,
    and the middle cut out beyond `most` characters."""
    text = _cut(text, most)
    if text.isprintable():
        return text
    return _cut("".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text), most)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = (most - len(_CUT)) // 3
    return text[: most - len(_CUT) - tail] + _CUT + text[len(text) - tail :]
