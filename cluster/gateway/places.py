"""So many at a time: who comes beyond that is refused, with a hint when to come back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workers.core.errors import OverloadedError
from workers.core.retry_hint import RetryHints

__all__ = ["Places"]


class Places:
    """Belongs to one event loop. `clock` in seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hints = RetryHints()
        self.taken = 0

    @contextmanager
    def one(self, limit: int | None, refusal: str) -> Iterator[None]:
        """Take a place as long as this lasts; `OverloadedError` with this text when `limit` are taken already."""
        if limit is not None and self.taken >= limit:
            raise OverloadedError(refusal, self._hints.refuse(self._clock()))
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._hints.left(self._clock())
            if not self.taken:
                self._hints.idle()
