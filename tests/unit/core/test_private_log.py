"""Failures are logged with everything but the texts of exceptions."""

import logging

import pytest

from workers.core.private_log import CONTENT_VARIABLE, content_wanted, log_failure, private, summary

SECRET = "the-prompt"  # noqa: S105
WANTED = {CONTENT_VARIABLE: "1"}


def failing() -> BaseException:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as inner:
            raise RuntimeError(f"while reading {SECRET}") from inner
    except RuntimeError as error:
        return error


def test_class_place_and_cause_are_logged_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(logging.getLogger("x"), "request r failed", failing(), {})
    for part in ("request r failed", "RuntimeError", "caused by", "KeyError", "in failing"):
        assert part in caplog.text
    assert SECRET not in caplog.text


def test_with_the_setting_texts_are_there(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(logging.getLogger("x"), "request r failed", failing(), WANTED)
    assert caplog.text.count(SECRET) >= 2


def test_a_cause_that_was_meant_to_be_hidden_stays_hidden(caplog: pytest.LogCaptureFixture) -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError:
            raise ValueError("x") from None
    except ValueError as error:
        log_failure(logging.getLogger("x"), "failed", error, WANTED)
    assert "KeyError" not in caplog.text


def test_an_exception_that_causes_itself_ends(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x")
    error.__cause__ = error
    log_failure(logging.getLogger("x"), "failed", error, {})
    assert caplog.text.count("ValueError") == 1


def test_words_of_the_operating_system_are_shown() -> None:
    assert summary(FileNotFoundError(2, "No such file"), {}).endswith("No such file")
    assert summary(MemoryError("no more"), {}) == "MemoryError: no more"
    assert summary(ValueError(SECRET), {}) == "ValueError"


def test_single_words() -> None:
    assert private(SECRET, {}) == "(text withheld)"
    assert private(SECRET, WANTED) == SECRET
    assert [content_wanted({CONTENT_VARIABLE: value}) for value in ("1", "0", "true")] == [True, False, False]
