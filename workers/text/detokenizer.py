"""Tokens in, text out, while they come."""

from collections.abc import Sequence

from workers.text.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer"]

REPLACEMENT = "�"


class IncrementalDetokenizer:
    """What was pushed and finished, joined, is the text of all tokens, whatever the chunks.

    A token may hold part of a character, so text is held back while it ends in the replacement character. A token's
    text may depend on the token before it (sentencepiece drops the space of the first word only), so tokens are
    decoded behind the last one whose text is out. The text that is out depends on the tokens alone.

    Byte-fallback tokens (`<0xE2>`): whole characters go out at once. `Tokenizer.decode` agrees unless
    the model writes whole characters and then broken ones in one run of such tokens: the whole ones stay here.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []  # at most one token, already out
        self._context_length = 0  # characters
        self._window: list[int] = []  # held back

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that is certain now."""
        return "".join(self._push_one(token) for token in token_ids if token not in self._tokenizer.special_token_ids)

    def finish(self) -> str:
        """What was still held back: characters that stayed incomplete, as the replacement character."""
        text = self._window_text()
        self._window.clear()
        return text

    def _push_one(self, token: int) -> str:
        self._window.append(token)
        text = self._window_text()
        if text.endswith(REPLACEMENT):
            return ""
        self._window.clear()
        if token not in self._tokenizer.byte_token_ids and self._tokenizer.has_token(token):
            self._context = [token]
            self._context_length = len(self._tokenizer.decode(self._context))
        return text

    def _window_text(self) -> str:
        if not self._window:
            return ""
        return self._tokenizer.decode(self._context + self._window)[self._context_length :]
