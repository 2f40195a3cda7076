"""Tokens that someone chose in order to break the text or to make it costly (`logit_bias` can force any)."""

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.counting_tokenizer import CountingTokenizer
from tests.unit.text.conftest import HOSTILE_PIECES
from workers.text.detokenizer import IncrementalDetokenizer
from workers.text.output_text import OutputText
from workers.text.tokenizer import Tokenizer

BYTE = 2  # token of the byte 0 in the sentencepiece vocabulary
PIECES = range(BYTE + 256, BYTE + 256 + 13)  # its tokens that are no bytes
UNKNOWN = len(HOSTILE_PIECES) + 2  # an id that has no token
MOST_DECODED = 12  # tokens, for each that is pushed


def _tokens(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), max_size=60)


SIZES = st.lists(st.integers(0, 7), max_size=30)


@given(tokens=_tokens(UNKNOWN), sizes=SIZES)
@example(tokens=[14, 5, 4, 3, 0], sizes=[1] * 9)  # a character of four tokens
@example(tokens=[11, 17, 17, 17, 3, 7], sizes=[1] * 9)  # each token ends one character and begins the next
@example(tokens=[11, 25, 25, 25, 25, 3, 25, 7], sizes=[1] * 9)  # tokens without text inside a character
def test_byte_level(hostile: CountingTokenizer, tokens: list[int], sizes: list[int]) -> None:
    """Whatever the bytes and the chunks: the text of all tokens, and at most its last character is held back."""
    detokenizer, out, start = IncrementalDetokenizer(hostile), "", 0
    for size in [*sizes, len(tokens)]:
        out += detokenizer.push(tokens[start : start + size])
        start += size
        whole = hostile.decode(tokens[:start])
        assert out == whole or out + "�" == whole
    assert out + detokenizer.finish() == hostile.decode(tokens)


CHARACTERS = st.text(alphabet="a é€🙂�", min_size=1, max_size=6).map(str.encode)
BROKEN = st.builds(bytes.__add__, st.sampled_from([b"\xff", b"\x80", b"\xe2a", b"\xc3\xc3"]), st.binary(max_size=9))
ENDS = st.sampled_from([b"", b"\xe2", b"\xf0\x9f\x99", "é".encode()])
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)


@given(parts=st.lists(st.tuples(st.one_of(CHARACTERS, BROKEN), WORDS), max_size=8), rest=ENDS, size=st.integers(1, 7))
@example(parts=[(b" ", [PIECES[8]])], rest=b"a", size=1)  # a byte, not a word, is the first
def test_byte_fallback(sentencepiece: Tokenizer, parts: list[tuple[bytes, list[int]]], rest: bytes, size: int) -> None:
    """Runs of bytes that are whole characters or begin with a broken one: the text of all tokens."""
    tokens = [token for run, words in parts for token in (*_bytes(run), *words)]
    tokens += _bytes(rest)
    detokenizer = IncrementalDetokenizer(sentencepiece)
    out = "".join(detokenizer.push(tokens[start : start + size]) for start in range(0, len(tokens), size))
    assert out + detokenizer.finish() == sentencepiece.decode(tokens)


def test_whole_characters_stay_when_the_run_breaks_behind_them(sentencepiece: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(sentencepiece)
    run = _bytes("é".encode() + b"\xff" + "éa".encode())
    assert [detokenizer.push([token]) for token in run] == ["", "é", "", "", "", "����"]
    assert detokenizer.push(_bytes(b"a")) == "�"
    assert detokenizer.push([PIECES[1], *_bytes("é".encode())]) == "aé"


@given(tokens=_tokens(UNKNOWN), sizes=SIZES)
def test_stop_strings(hostile: CountingTokenizer, tokens: list[int], sizes: list[int]) -> None:
    stops = ["�a", "€€", "����", "🙂"]
    single, used, text = OutputText(hostile, stops), 0, ""
    while used < len(tokens) and single.stopped is None:
        text += single.push(tokens[used : used + 1]).text
        used += 1
    chunked, chunks_used, chunks_text, start = OutputText(hostile, stops), 0, "", 0
    for size in [*sizes, len(tokens)]:
        step = chunked.push(tokens[start : start + size])
        start, chunks_used, chunks_text = start + size, chunks_used + step.tokens_used, chunks_text + step.text
    assert (chunks_text, chunks_used, chunked.stopped) == (text, used, single.stopped)
    assert chunked.copy().finish() == chunked.finish() == single.finish()


@pytest.mark.parametrize("stops", [(), ("never",), ("�" * 9 + "a",)])
@pytest.mark.parametrize(
    "cycle", [[4], [11], [11, 4], [11, 25], [17], [26, 14], [20, 16], [22], [23], [25], [UNKNOWN], [0]]
)
def test_work_for_each_token_is_bounded(hostile: CountingTokenizer, cycle: list[int], stops: Sequence[str]) -> None:
    _check_work(hostile, lambda: OutputText(hostile, stops), cycle * (600 // len(cycle)))


@pytest.mark.parametrize(
    "cycle", [b"\xff", b"\xe2", b"\xe2\x82", b"\xf0\x9f\x99", "é".encode(), b"a", "🙂".encode() + b"\xff"]
)
def test_work_for_each_byte_is_bounded(sentencepiece: CountingTokenizer, cycle: bytes) -> None:
    _check_work(sentencepiece, lambda: OutputText(sentencepiece), _bytes(cycle) * (600 // len(cycle)))


def _check_work(tokenizer: CountingTokenizer, start: Callable[[], OutputText], tokens: Sequence[int]) -> None:
    single = start()
    text = ""
    for token in tokens:
        before = tokenizer.decoded_tokens
        text += single.push([token]).text
        assert tokenizer.decoded_tokens - before <= MOST_DECODED
    before = tokenizer.decoded_tokens
    whole = start()
    assert whole.push(tokens).text == text
    assert tokenizer.decoded_tokens - before <= MOST_DECODED * len(tokens)
    assert whole.finish() == single.finish()


def test_work_for_each_replacement_character_of_the_vocabulary_is_bounded(sentencepiece: CountingTokenizer) -> None:
    _check_work(sentencepiece, lambda: OutputText(sentencepiece), [PIECES[-1]] * 600)


@pytest.mark.parametrize("position", [0, 1, 499, 998, 999])
def test_a_stop_string_among_many_tokens_is_found_without_decoding_all_again(
    hostile: CountingTokenizer, position: int
) -> None:
    tokens = [4] * 1000
    tokens[position] = 0  # a
    before = hostile.decoded_tokens
    step = OutputText(hostile, ["a"]).push(tokens)
    assert (step.text, step.stopped, step.tokens_used) == ("�" * position, "a", position + 1)
    assert hostile.decoded_tokens - before <= 3 * len(tokens) + 30 * MOST_DECODED


def test_many_tokens_at_once_are_decoded_once(hostile: CountingTokenizer) -> None:
    before = hostile.decoded_tokens
    IncrementalDetokenizer(hostile).push([4] * 10_000)
    assert hostile.decoded_tokens - before <= 10_000 + MOST_DECODED


def _bytes(values: Iterable[int]) -> list[int]:
    return [BYTE + value for value in values]
