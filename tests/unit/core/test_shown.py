"""What messages repeat of others' values: always printable, always short, whatever it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.core.shown import printable, shown

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ANYTHING, st.integers(20, 300))
def test_it_is_printable_and_short(value: Any, most: int) -> None:
    text = shown(value, most)
    assert text.isprintable()
    assert len(text) <= most


@given(st.text(), st.integers(20, 300))
def test_names_too(text: str, most: int) -> None:
    found = printable(text, most)
    assert found.isprintable()
    assert len(found) <= most
    if text.isprintable() and len(text) <= most:
        assert found == text


def test_lines_may_stay() -> None:
    assert printable("one\ntwo\x1b[31m", keep="\n") == "one\ntwo\\x1b[31m"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "'a b'"),
        ("a\x1b[31m\0\n\u202e", r"'a\x1b[31m\x00\n\u202e'"),
        (10**400, "about 10**400"),
        (12, "12"),
        (float("nan"), "nan"),
    ],
)
def test_examples(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_number_that_python_itself_would_not_write() -> None:
    assert shown(-(16**9000)) == "-about 10**10837"


def test_both_ends_of_a_long_text_stay() -> None:
    text = shown("begin" + "x" * 10**6 + "end")
    assert text.startswith("'begin")
    assert text.endswith("end'")
    assert len(printable("/folder/" + "x" * 1000 + "/file.yaml")) == 120
    assert printable("/folder/" + "x" * 1000 + "/file.yaml").endswith("/file.yaml")


def test_values_that_hold_themselves_or_thousands_of_millions() -> None:
    ring: list[Any] = []
    ring.append(ring)
    assert len(shown(ring)) <= 120
    laughs: list[Any] = ["ha"]
    for _ in range(12):
        laughs = [laughs] * 9
    assert len(shown(laughs)) <= 120
