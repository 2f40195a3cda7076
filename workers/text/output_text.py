"""The text of one answer: detokenised as tokens come, ended before a stop string."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        text = ""
        used = 0
        while used < len(token_ids) and self._matcher.stopped is None:
            text += self._matcher.push(self._detokenizer.push(token_ids[used : used + 1]))
            used += 1
        return TextStep(text, self._matcher.stopped, used)

    def finish(self) -> str:
        """The answer has ended: the text that was still held back."""
        text = self._detokenizer.finish()
        return text if self._matcher is None else self._matcher.push(text) + self._matcher.finish()
