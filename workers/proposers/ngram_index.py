"""Where each n-gram of a growing sequence occurred last."""

from collections import deque
from collections.abc import Iterator, Sequence

__all__ = ["NgramIndex"]

REMEMBERED_OCCURRENCES = 16


class NgramIndex:
    """Extending by one token costs one dictionary entry for each n; looking up costs nothing more."""

    def __init__(self, min_n: int, max_n: int, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._min_n, self._max_n = min_n, max_n
        # n-gram to the positions right after its occurrences, oldest first
        self._next: dict[tuple[int, ...], deque[int]] = {}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. An n-gram is entered when the token after it is known, so the suffix never finds itself."""
        for token in tokens:
            end = len(self.tokens)
            for n in range(self._min_n, min(self._max_n, end) + 1):
                ngram = tuple(self.tokens[end - n : end])
                self._next.setdefault(ngram, deque(maxlen=REMEMBERED_OCCURRENCES)).append(end)
            self.tokens.append(token)

    def continuations(self, max_length: int) -> Iterator[list[int]]:
        """What followed earlier occurrences of the longest suffix that has any, the most recent one first."""
        for n in range(min(self._max_n, len(self.tokens)), self._min_n - 1, -1):
            found = self._next.get(tuple(self.tokens[-n:]))
            if found:
                for start in reversed(found):
                    yield self.tokens[start : start + max_length]
                return
