"""The text of one answer: detokenised as tokens come, ended before a stop string."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from workers.text.detokenizer import IncrementalDetokenizer
from workers.text.stop_strings import StopStringMatcher
from workers.text.tokenizer import Tokenizer

__all__ = ["OutputText", "TextStep"]


@dataclass(frozen=True)
class TextStep:
    """What some tokens added to the text. Tokens beyond `tokens_used` come after the stop string: drop them."""

    text: str
    stopped: str | None  # the stop string, once it is complete
    tokens_used: int


class OutputText:
    """Verifier and gateway both follow an answer with it, so both end it at the same token and character."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._matcher = StopStringMatcher(stops) if stops else None

    @property
    def stopped(self) -> str | None:
        return self._matcher.stopped if self._matcher else None

    def push(self, token_ids: Sequence[int]) -> TextStep:
        """Take more tokens of the answer. Text may lag behind them: partial characters, possible stop strings."""
        if self._matcher is None:
            return TextStep(self._detokenizer.push(token_ids), None, len(token_ids))
        if self._matcher.stopped is not None:
            return TextStep("", self._matcher.stopped, 0)
        before = self._detokenizer.copy(), self._matcher.copy()
        text = self._matcher.push(self._detokenizer.push(token_ids))
        if self._matcher.stopped is None or len(token_ids) == 1:
            return TextStep(text, self._matcher.stopped, len(token_ids))
        self._detokenizer, self._matcher = before
        return self._push_halves(token_ids)

    def _push_halves(self, token_ids: Sequence[int]) -> TextStep:
        """Find the token that completes the stop string; in all, each token is decoded three times at most."""
        middle = len(token_ids) // 2
        first = self.push(token_ids[:middle])
        if first.stopped is not None:
            return first
        second = self.push(token_ids[middle:])
        return TextStep(first.text + second.text, second.stopped, middle + second.tokens_used)

    def finish(self) -> str:
        """The answer has ended: the text that was still held back."""
        text = self._detokenizer.finish()
        return text if self._matcher is None else self._matcher.push(text) + self._matcher.finish()

    def copy(self) -> Self:
        """Goes on from here by itself."""
        other = copy.copy(self)
        other._detokenizer = self._detokenizer.copy()
        other._matcher = self._matcher.copy() if self._matcher else None
        return other
