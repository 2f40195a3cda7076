"""Stop strings: the first that is complete ends the text, and nothing of it gets out."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from workers.text.output_text import OutputText, TextStep
from workers.text.stop_strings import StopStringMatcher
from workers.text.tokenizer import Tokenizer

LETTERS = st.text(alphabet="ab", min_size=1, max_size=4)


def _reference(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """By definition: the smallest end, then the longest stop string."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


@given(text=st.text(alphabet="ab", max_size=40), stops=st.lists(LETTERS, max_size=4), cut=st.integers(1, 7))
@example(text="aab", stops=["ab", "aab"], cut=1)
@example(text="abab", stops=["abb", "bab"], cut=2)
def test_equals_the_definition_for_any_cut(text: str, stops: list[str], cut: int) -> None:
    matcher = StopStringMatcher(stops)
    out = ""
    for start in range(0, len(text), cut):
        out += matcher.push(text[start : start + cut])
        wanted, _ = _reference(text, stops)
        assert wanted.startswith(out)  # nothing gets out that belongs to a stop string
    out += matcher.finish()
    assert (out, matcher.stopped) == _reference(text, stops)


def test_holds_back_no_more_than_could_become_a_stop_string() -> None:
    matcher = StopStringMatcher(["</end>"])
    assert matcher.push("text </e") == "text "
    assert matcher.push("x") == "</ex"
    assert matcher.push("</end") == ""
    assert matcher.finish() == "</end"
    assert matcher.stopped is None


def test_nothing_follows_a_match() -> None:
    matcher = StopStringMatcher(["\n"])
    assert matcher.push("one\ntwo") == "one"
    assert matcher.stopped == "\n"
    assert matcher.push("three") == matcher.finish() == ""


def test_tokens_after_the_stop_string_are_dropped(byte_level: Tokenizer) -> None:
    tokens = [byte_level.encode(letter)[0] for letter in "xyENDz"]
    assert OutputText(byte_level, ["END"]).push(tokens) == TextStep("xy", "END", 5)


def test_a_stop_string_may_lie_across_steps_and_inside_a_token(byte_level: Tokenizer) -> None:
    text = OutputText(byte_level, [" ri"])
    word = byte_level.encode(" river")
    letters = [byte_level.encode(letter)[0] for letter in "the"]
    assert text.push(letters) == TextStep("the", None, 3)
    step = text.push([*word, *letters])
    assert (step.text, step.stopped) == ("", " ri")
    assert step.tokens_used <= len(word)
    assert text.push(letters) == TextStep("", " ri", 0)
    assert text.finish() == ""


def test_without_stop_strings_all_tokens_are_used(byte_level: Tokenizer) -> None:
    tokens = byte_level.encode("plain text €")
    text = OutputText(byte_level)
    assert text.push(tokens[:-1]) == TextStep("plain text ", None, len(tokens) - 1)
    assert text.stopped is None
    assert text.push(tokens[-1:]).text + text.finish() == "€"


def test_a_held_back_beginning_of_a_stop_string_comes_out_at_the_end(byte_level: Tokenizer) -> None:
    text = OutputText(byte_level, ["word!"])
    assert text.push(byte_level.encode("a word")).text + text.finish() == "a word"


@given(tokens=st.lists(st.integers(3, 511), max_size=40), sizes=st.lists(st.integers(1, 5), max_size=40))
def test_verifier_and_gateway_agree_whatever_their_steps(
    byte_level: Tokenizer, tokens: list[int], sizes: list[int]
) -> None:
    stops = ["e ", "th", "�", "ing"]
    whole = OutputText(byte_level, stops)
    step = whole.push(tokens)
    text, used, start = OutputText(byte_level, stops), 0, 0
    out = ""
    for size in [*sizes, len(tokens)]:
        part = text.push(tokens[start : start + size])
        out, used, start = out + part.text, used + part.tokens_used, start + size
    assert (out, text.stopped, used) == (step.text, step.stopped, step.tokens_used)
