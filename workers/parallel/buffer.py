"""Numbers in one flat buffer: sections of int32 or bytes, one behind the other, each with its length in front.

    int64 length in bytes | payload | zeros up to the next multiple of 8

Nothing in it is code or names code: a reader can get wrong numbers from a bad buffer, never more than that.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workers.core.errors import ProtocolViolationError

__all__ = ["Bytes", "Ints", "Reader", "Writer"]

Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 8
LARGEST = 2**31 - 1


class Writer:
    """Collects sections; `finish` joins them."""

    def __init__(self) -> None:
        self._parts: list[Bytes] = []

    def ints(self, values: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """Integers from -2**31 to 2**31 - 1; others are an `OverflowError`."""
        wide = np.asarray(values, dtype=np.int64)
        if wide.size and (wide.max() > LARGEST or wide.min() < -LARGEST - 1):
            raise OverflowError("a number is too large for a step's buffer")
        self.blob(wide.astype(np.int32).view(np.uint8))

    def blob(self, payload: Bytes) -> None:
        self._parts.append(np.array([payload.size], dtype=np.int64).view(np.uint8))
        self._parts.append(payload)
        self._parts.append(np.zeros(-payload.size % ALIGNMENT, dtype=np.uint8))

    def finish(self) -> Bytes:
        return np.concatenate(self._parts) if self._parts else np.empty(0, dtype=np.uint8)


class Reader:
    """Takes sections out in the order in which they were written; `ProtocolViolationError` where there are none."""

    def __init__(self, buffer: Bytes) -> None:
        self._buffer = buffer
        self._at = 0

    def ints(self) -> npt.NDArray[np.int64]:
        payload = self.blob()
        if payload.size % 4:
            raise ProtocolViolationError("a step's buffer has a broken section of integers")
        return payload.view(np.int32).astype(np.int64)

    def blob(self) -> Bytes:
        end = self._at + ALIGNMENT
        if end > self._buffer.size:
            raise ProtocolViolationError("a step's buffer ends too early")
        size = int(self._buffer[self._at : end].view(np.int64)[0])
        if not 0 <= size <= self._buffer.size - end:
            raise ProtocolViolationError("a step's buffer has a section of impossible length")
        self._at = end + size + -size % ALIGNMENT
        return self._buffer[end : end + size]

    def end(self) -> None:
        """Raise unless everything was read."""
        if self._at != self._buffer.size:
            raise ProtocolViolationError("a step's buffer is longer than what it holds")
