"""Stop strings in a stream of text."""

import copy
from collections.abc import Sequence
from typing import Self

__all__ = ["StopStringMatcher"]


class StopStringMatcher:
    """Finds the stop string that is complete first (of several, the longest); holds back what may become one.

    Each stop string is matched by the automaton of Knuth, Morris and Pratt: constant work per character and string,
    and the result does not depend on how the text is cut into pushes.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._failures = [_failure_table(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # per stop string: characters matched by the end of the text so far
        self._held = ""
        self.stopped: str | None = None

    def push(self, text: str) -> str:
        """The text that is certainly before any stop string; nothing more once one is found (`stopped`)."""
        if self.stopped is not None:
            return ""
        for position, character in enumerate(text):
            found = self._advance(character)
            if found is not None:
                self.stopped = found
                certain = self._held + text[: position + 1]
                self._held = ""
                return certain[: -len(found)]
        certain = self._held + text
        keep = max(self._matched, default=0)
        self._held = certain[len(certain) - keep :]
        return certain[: len(certain) - keep]

    def finish(self) -> str:
        """The text that was held back and did not become a stop string."""
        held, self._held = self._held, ""
        return held

    def copy(self) -> Self:
        """Goes on from here by itself."""
        other = copy.copy(self)
        other._matched = list(self._matched)
        return other

    def _advance(self, character: str) -> str | None:
        """Take one character into account; the longest stop string that is complete with it."""
        for i, stop in enumerate(self._stops):
            matched = self._matched[i]
            while matched and stop[matched] != character:
                matched = self._failures[i][matched - 1]
            matched += stop[matched] == character
            self._matched[i] = matched
            if matched == len(stop):
                return stop  # longest first
        return None


def _failure_table(pattern: str) -> list[int]:
    """Entry i: length of the longest proper prefix of pattern[:i + 1] that is also its suffix."""
    table = [0] * len(pattern)
    matched = 0
    for i in range(1, len(pattern)):
        while matched and pattern[matched] != pattern[i]:
            matched = table[matched - 1]
        matched += pattern[matched] == pattern[i]
        table[i] = matched
    return table
