"""Tokens in, text out, while they come."""

import copy
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Self

from workers.text.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer"]

REPLACEMENT = "�"
CHARACTER_BYTES = 4  # of the longest character in UTF-8


class IncrementalDetokenizer:
    """What was pushed and finished, joined, is the text of all tokens, whatever the chunks.

    The text that is out after some tokens depends on these alone. Each push decodes its own tokens and a handful
    before them, never more: nobody can write tokens that make later ones costly.

    Byte-level tokens may hold parts of characters. Decoding replaces each broken part as soon as the next byte does
    not continue it, so only a replacement character at the very end can still become another one: it alone is held
    back. Its bytes are in the last three tokens that have text, and what begins there decodes to the same end: UTF-8
    finds its way again at the next character. So these three are kept, with the number of characters that are out.

    Byte-fallback tokens (`<0xE2>`) are decoded run by run: a run with a broken character gives one replacement
    character for each of its bytes. A character has at most four, so a run that begins with more bytes than that and
    no character is broken. `Tokenizer.decode` agrees unless the model writes whole characters and then broken ones in
    one run: the whole ones, which are out, stay.

    A token's text may depend on the token before it (sentencepiece drops the space of the first word only): there is
    always one, already out, before what is decoded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tail: tuple[int, ...] = ()  # the last tokens; what comes next is decoded behind them
        self._tail_out = 0  # characters of their text that are out
        self._held = ""  # the last character of their text, when it may change
        self._run: tuple[int, ...] = ()  # byte-fallback tokens that are no whole character yet
        self._run_broken = False  # each further byte of this run is a replacement character

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that is certain now."""
        special = self._tokenizer.special_token_ids
        known = [token for token in token_ids if token not in special and self._tokenizer.has_token(token)]
        groups = groupby(known, self._tokenizer.byte_values.__contains__)
        return "".join(
            (self._push_bytes if of_bytes else self._push_pieces)(tuple(group)) for of_bytes, group in groups
        )

    def finish(self) -> str:
        """What was still held back: a character that stayed incomplete, as replacement characters."""
        text, self._held = self._held, ""
        self._tail_out += len(text)
        return text + self._end_run()

    def copy(self) -> Self:
        """Goes on from here by itself."""
        return copy.copy(self)  # its state is immutable

    def _push_pieces(self, tokens: tuple[int, ...]) -> str:
        """Tokens that are not for one byte each."""
        broken = self._end_run()
        text = self._tokenizer.decode(self._tail + tokens)[self._tail_out :]
        # where some tokens stand for bytes, the others have whole characters
        self._held = REPLACEMENT if text.endswith(REPLACEMENT) and not self._tokenizer.byte_values else ""
        if self._held:
            self._keep(self._last_with_text(self._tail + tokens))
        else:
            self._keep(tokens[-1:])
        return broken + text.removesuffix(self._held)

    def _push_bytes(self, tokens: tuple[int, ...]) -> str:
        return "".join(map(self._push_byte, tokens))

    def _push_byte(self, token: int) -> str:
        if self._run_broken:
            return REPLACEMENT
        self._run += (token,)
        if _is_text(self._tokenizer.byte_values[one] for one in self._run):
            text = self._tokenizer.decode(self._tail + self._run)[self._tail_out :]
            self._keep(self._run)
            self._run = ()
            return text
        if len(self._run) < CHARACTER_BYTES:
            return ""
        text = self._end_run()
        self._run_broken = True
        return text

    def _end_run(self) -> str:
        """The run goes no further: what is left of it was no character."""
        text = REPLACEMENT * len(self._run)
        if self._run:
            self._keep(self._run[-1:])
        self._run = ()
        self._run_broken = False
        return text

    def _keep(self, tail: tuple[int, ...]) -> None:
        self._tail = tail
        self._tail_out = len(self._tokenizer.decode(tail)) - len(self._held)

    def _last_with_text(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """As many as the bytes that an incomplete character can have."""
        found: list[int] = []
        for token in reversed(tokens):
            if self._tokenizer.decode((token,)):
                found.append(token)
            if len(found) == CHARACTER_BYTES - 1:
                break
        return tuple(reversed(found))


def _is_text(values: Iterable[int]) -> bool:
    try:
        bytes(values).decode()
    except UnicodeDecodeError:
        return False
    return True
