"""Text to token ids and back, for the target and the draft alike. Loads no torch (`workers.text.source`)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self

from workers.core.errors import InvalidRequestError
from workers.text.chat_template import Message, check_roles
from workers.text.source import TokenizerSource, read_source

__all__ = ["Tokenizer"]


class Tokenizer:
    """Immutable and thread-safe. Token ids are those of the model's embedding."""

    def __init__(self, source: TokenizerSource) -> None:
        self._backend = source.backend
        self._backend.no_truncation()
        self._backend.no_padding()
        self._template = source.template
        self.eos_token_ids = source.eos_token_ids
        added = self._backend.get_added_tokens_decoder()
        self.special_token_ids = frozenset(token for token, entry in added.items() if entry.special)
        self.byte_values = _byte_values(source)

    @classmethod
    def load(cls, model_ref: str) -> Self:
        """By hub id, local folder or GGUF file.

        Raises `NotFoundError` when there is none, `ConfigurationError` when it cannot be used.
        """
        return cls(read_source(str(model_ref)))

    @cached_property
    def vocab_size(self) -> int:
        """Token ids are below it. Models may pad their embeddings beyond."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def tokenizer_hash(self) -> str:
        """Equal for equal definitions (vocabulary, merges, added tokens), wherever they were loaded from."""
        model = json.loads(self._backend.to_str())["model"]
        merges = [one.split(" ", 1) if isinstance(one, str) else list(one) for one in model.get("merges", [])]
        added = self._backend.get_added_tokens_decoder()
        definition = {
            "type": model.get("type"),
            "vocabulary": sorted((i, token) for token, i in self._backend.get_vocab(with_added_tokens=True).items()),
            "merges": merges,
            "added": sorted((token, entry.content) for token, entry in added.items()),
        }
        text = json.dumps(definition, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain prompt, with what the model expects around it (say, a begin-of-sequence token).

        Raises `InvalidRequestError` for an empty prompt.
        """
        if not text:
            raise InvalidRequestError("prompt: the text is empty; at least one character is needed")
        return self._encode(text, add_special_tokens=True)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation; its template already writes the special tokens.

        Raises `InvalidRequestError` for an empty conversation, an unknown role, a conversation that the template
        refuses, or a model without a template.
        """
        check_roles(messages)
        if self._template is None:
            raise InvalidRequestError("chat: this model has no chat template; send plain text or token ids instead")
        return self._encode(self._template.render(messages), add_special_tokens=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the tokens, without special tokens; ids that have no token (padding of the model) give nothing."""
        return self._backend.decode(
            [t for t in token_ids if t not in self.special_token_ids], skip_special_tokens=False
        )

    def has_token(self, token_id: int) -> bool:
        return self._backend.id_to_token(token_id) is not None

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            encoded = self._backend.encode(text, add_special_tokens=add_special_tokens)
        except (TypeError, UnicodeEncodeError) as error:  # lone surrogates
            raise InvalidRequestError("prompt: the text is not valid Unicode") from error
        return list(encoded.ids)


def _byte_values(source: TokenizerSource) -> Mapping[int, int]:
    """Tokens that stand for one byte each (`<0x0A>`) where the decoder joins them (sentencepiece's byte fallback)."""
    decoder = source.backend.decoder
    if decoder is None or b"ByteFallback" not in decoder.__getstate__():
        return {}
    ids = {byte: source.backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
    return {token: byte for byte, token in ids.items() if token is not None}
