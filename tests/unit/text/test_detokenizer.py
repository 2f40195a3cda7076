"""Increments join to the whole text, whatever the chunks, and never show half a character."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.text.detokenizer import IncrementalDetokenizer
from workers.text.tokenizer import Tokenizer


def _chunks(items: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for size in sizes:
        yield items[start : start + size]
        start += size
    yield items[start:]


def _increments(tokenizer: Tokenizer, chunks: Iterator[Sequence[int]]) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.finish()]


SIZES = st.lists(st.integers(0, 5), max_size=20)


@given(tokens=st.lists(st.integers(0, 511), max_size=60), sizes=SIZES)
def test_byte_level_any_tokens(byte_level: Tokenizer, tokens: list[int], sizes: list[int]) -> None:
    assert "".join(_increments(byte_level, _chunks(tokens, sizes))) == byte_level.decode(tokens)


@given(text=st.text(alphabet="ab \n~é€漢🙂🛰\ufe0f�\x00", max_size=40), sizes=SIZES)
def test_byte_level_valid_text_has_no_replacement_characters(
    byte_level: Tokenizer, text: str, sizes: list[int]
) -> None:
    tokens = byte_level.encode(text) if text else []
    increments = _increments(byte_level, _chunks(tokens, sizes))
    assert "".join(increments) == text
    assert all("�" not in increment for increment in increments) or "�" in text


@given(text=st.text(alphabet="ab cdé.€🙂", max_size=40), sizes=SIZES)
def test_sentencepiece_any_text(sentencepiece: Tokenizer, text: str, sizes: list[int]) -> None:
    tokens = sentencepiece.encode(text) if text else []
    increments = _increments(sentencepiece, _chunks(tokens, sizes))
    assert "".join(increments) == sentencepiece.decode(tokens) == text


@given(tokens=st.lists(st.integers(0, 270), max_size=40), sizes=SIZES)
def test_the_text_depends_on_the_tokens_alone(sentencepiece: Tokenizer, tokens: list[int], sizes: list[int]) -> None:
    """Also where byte tokens are nonsense: what is out after some tokens does not depend on the chunks."""
    detokenizer, single = IncrementalDetokenizer(sentencepiece), IncrementalDetokenizer(sentencepiece)
    out = expected = ""
    for chunk in _chunks(tokens, sizes):
        out += detokenizer.push(chunk)
        expected += "".join(single.push([token]) for token in chunk)
        assert out == expected
    assert out + detokenizer.finish() == expected + single.finish()


def test_half_a_character_is_held_back(byte_level: Tokenizer) -> None:
    tokens = byte_level.encode("é🙂x")
    detokenizer = IncrementalDetokenizer(byte_level)
    assert [detokenizer.push([token]) for token in tokens] == ["", "é", "", "", "", "🙂", "x"]


def test_an_incomplete_end_comes_out_at_finish(byte_level: Tokenizer) -> None:
    tokens = byte_level.encode("a🙂")[:-1]
    assert _increments(byte_level, iter([tokens])) == ["a", "�"]


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece"])
def test_special_and_unknown_tokens_have_no_text(family: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(family)
    tokens = tokenizer.encode("ab a")
    padded = [0, tokens[0], 1, 100_000, *tokens[1:], 1]
    assert "".join(_increments(tokenizer, iter([padded]))) == "ab a"
