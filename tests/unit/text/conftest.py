"""Tokenizers of the two families: byte-level BPE and sentencepiece-style with byte fallback."""

from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

from workers.text.source import TokenizerSource
from workers.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_level(tiny_target: Path) -> Tokenizer:
    return Tokenizer.load(str(tiny_target))


@pytest.fixture(scope="session")
def sentencepiece() -> Tokenizer:
    """As Llama 2's: "▁" for spaces, bytes for what has no token, the first word's space is dropped."""
    pieces = ["<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdeé.", "▁a", "▁b", "ab", "▁ab"]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b"), ("▁", "ab")]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, byte_fallback=True))
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(TokenizerSource(backend, None, (1,)))
