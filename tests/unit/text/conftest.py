"""Tokenizers of the two families: byte-level BPE and sentencepiece-style with byte fallback; and ones that count."""

from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tests.fakes.counting_tokenizer import CountingTokenizer
from workers.text.source import TokenizerSource
from workers.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_level(tiny_target: Path) -> Tokenizer:
    return Tokenizer.load(str(tiny_target))


@pytest.fixture(scope="session")
def sentencepiece() -> CountingTokenizer:
    """As Llama 2's: "▁" for spaces, bytes for what has no token, the first word's space is dropped."""
    pieces = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeé.", "▁a", "▁b", "ab", "▁ab", "�"]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b"), ("▁", "ab")]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, byte_fallback=True))
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return CountingTokenizer(TokenizerSource(backend, None, (1,)))


# Parts of "é", "€", "🙂" and "�" that begin in one character and end in the next, and bytes that are never UTF-8.
HOSTILE_PIECES = (
    *(bytes([byte]) for byte in b"a \x80\x82\x98\x9f\xa9\xac\xbd\xbf\xc3\xe2\xed\xef\xf0\xf4\xff"),
    *(
        b"\x82\xac\xe2",
        b"\xac\xe2",
        b"\xa9\xc3",
        b"a\xe2\x82",
        b"\x99\x82\xf0\x9f",
        b"\xbf\xbd",
        "�".encode(),
        b"\xf0\x9f",
    ),
)


@pytest.fixture(scope="session")
def hostile() -> CountingTokenizer:
    """Byte-level, of `HOSTILE_PIECES`; its last two tokens are one without text and an added one."""
    letters = bytes_to_unicode()
    pieces = ["".join(letters[byte] for byte in piece) for piece in HOSTILE_PIECES]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate([*pieces, ""])}, []))
    backend.add_tokens([AddedToken("< x>", special=False)])
    backend.decoder = decoders.ByteLevel()
    return CountingTokenizer(TokenizerSource(backend, None, ()))
