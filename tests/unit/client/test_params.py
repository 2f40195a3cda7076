"""Local checks: each bad input is named, with what is allowed."""

from typing import Any

import outrider
import pytest
from outrider import ChatMessage, InvalidRequestError, SamplingParams, Speculation, VerificationRule


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", "hot", "temperature: expected a number, got 'hot' (str)"),
        ("temperature", True, "temperature: expected a number"),
        ("top_k", -1, "top_k: expected an integer from 0 to 2147483647, got -1"),
        ("top_k", 2**31, "top_k: expected an integer from 0 to 2147483647, got 2147483648"),
        ("top_k", 1.5, "top_k: expected an integer"),
        ("max_tokens", 2**31, "max_tokens: expected an integer from 0 to 2147483647"),
        ("min_tokens", 2**31, "min_tokens: expected an integer from 0 to 2147483647"),
        ("n", False, "n: expected an integer"),
        ("seed", 2**64, "seed: expected an integer from 0 to 18446744073709551615"),
        ("ignore_eos", 1, "ignore_eos: expected True or False, got 1 (int)"),
        ("stop", 7, "stop: expected a text or a sequence of texts"),
        ("stop", ["a", 7], "stop[1]: expected a text, got 7 (int)"),
        ("stop", ["a", "b\ud800"], r"stop[1]: not valid Unicode: the lone surrogate '\ud800' at character 1 "),
        ("stop", "\udcff", r"stop: not valid Unicode: the lone surrogate '\udcff' at character 0 "),
        ("stop_token_ids", "12", "stop_token_ids: expected a sequence of token ids"),
        ("stop_token_ids", [1, -2], "stop_token_ids[1]: expected an integer"),
        ("logit_bias", [(1, 2.0)], "logit_bias: expected a mapping of token ids to numbers"),
        ("logit_bias", {"a": 1.0}, "logit_bias key: expected an integer"),
        ("logit_bias", {3: "much"}, "logit_bias[3]: expected a number"),
    ],
)
def test_a_sampling_parameter_of_the_wrong_type_is_named(field: str, value: object, message: str) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**arguments)
    assert caught.value.message.startswith(message)


HUGE = 10**5000  # longer than Python writes numbers


@pytest.mark.parametrize("field", ["temperature", "top_k", "seed", "n", "presence_penalty", "stop", "stop_token_ids"])
def test_numbers_without_an_end_are_told_shortly(field: str) -> None:
    arguments: dict[str, Any] = {field: [HUGE] if field == "stop_token_ids" else HUGE}
    with pytest.raises(InvalidRequestError, match=f"{field}.*: expected a.*, got a number of thousands of digits"):
        SamplingParams(**arguments)


def test_a_number_that_is_no_float() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"temperature: expected a number that a float can hold, got 10+\.\.\."
    ):
        SamplingParams(temperature=10**400)
    with pytest.raises(InvalidRequestError, match=r"logit_bias\[3\]: expected a number that a float can hold"):
        SamplingParams(logit_bias={3: -(10**400)})


@pytest.mark.parametrize("role", ["x" * 10**6, "\x1b[31m\n", HUGE], ids=["long", "control", "huge"])
def test_messages_repeat_little_of_what_they_were_given(role: Any) -> None:
    with pytest.raises(InvalidRequestError, match="unknown chat role") as caught:
        ChatMessage(role, "x")
    assert len(caught.value.message) < 250
    assert caught.value.message.isprintable()
    with pytest.raises(InvalidRequestError, match="a chat message is") as caught:
        ChatMessage.of({"role": role})
    assert len(caught.value.message) < 250


def test_sampling_parameters_do_not_change_with_the_callers_lists() -> None:
    stop, bias = ["a"], {1: 2.0}
    params = SamplingParams(stop=stop, logit_bias=bias)
    stop.append("b")
    bias[5] = 1.0
    assert params.stop == ("a",)
    assert params.logit_bias == {1: 2.0}
    assert SamplingParams(stop="x").stop == ("x",)


def test_the_largest_integers_pass() -> None:
    assert SamplingParams(top_k=2**31 - 1, max_tokens=2**31 - 1, seed=2**64 - 1).top_k == 2**31 - 1


def test_ranges_are_left_to_the_server() -> None:
    assert SamplingParams(temperature=-3.0, top_p=7.0, n=0).temperature == -3.0


def test_an_unknown_chat_role_is_refused() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"unknown chat role 'robot'; allowed are 'system', 'user', 'assistant'"
    ):
        ChatMessage("robot", "beep")


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": "x", "name": "y"}, "hello", 3])
def test_a_malformed_chat_message_is_refused(message: Any) -> None:
    with pytest.raises(InvalidRequestError, match="a chat message is"):
        ChatMessage.of(message)


def test_chat_content_must_be_text() -> None:
    with pytest.raises(InvalidRequestError, match="content: expected a text"):
        ChatMessage.of({"role": "user", "content": 5})  # type: ignore[dict-item]


def test_chat_content_must_be_unicode() -> None:
    with pytest.raises(InvalidRequestError, match="content: not valid Unicode"):
        ChatMessage("user", "\ud800")
    assert ChatMessage("user", "\U0001f600 \x00 \uffff").content  # whatever UTF-8 can carry


def test_speculation_values() -> None:
    assert Speculation.off().mode is outrider.SpeculationMode.OFF
    assert Speculation.auto(rule="rejection").rule is VerificationRule.REJECTION
    assert Speculation.on(depth=3, width=2, nodes=8) == Speculation(outrider.SpeculationMode.ON, 3, 2, 8)


def test_bad_speculation_is_named() -> None:
    with pytest.raises(
        InvalidRequestError, match="rule: expected one of 'coupled', 'rejection', 'typical', got 'magic'"
    ):
        Speculation.on(rule="magic")
    with pytest.raises(InvalidRequestError, match="depth: expected an integer"):
        Speculation.on(depth=-1)
    with pytest.raises(InvalidRequestError, match="mode: expected one of"):
        Speculation("sometimes")  # type: ignore[arg-type]


def test_derived_statistics() -> None:
    stats = outrider.GenerationStats(
        output_tokens=21,
        verify_steps=7,
        drafted_tokens=40,
        accepted_tokens=14,
        drafted_per_depth=(7, 5, 0),
        accepted_per_depth=(7, 2, 0),
        time_to_first_token_ms=100.0,
        total_ms=1100.0,
    )
    assert stats.acceptance_length == 3.0
    assert stats.acceptance_rate == 0.35
    assert stats.acceptance_rate_per_depth == (1.0, 0.4, 0.0)
    assert stats.tokens_per_second == pytest.approx(21 / 1.1)
    assert stats.decode_tokens_per_second == pytest.approx(20.0)


def test_statistics_of_nothing_are_zero() -> None:
    stats = outrider.GenerationStats()
    assert stats.acceptance_length == stats.acceptance_rate == stats.tokens_per_second == 0.0
    assert stats.decode_tokens_per_second == 0.0
    assert outrider.GenerationStats.combined([]) == stats


def test_combined_statistics_add_counters_and_keep_the_prompt() -> None:
    first = outrider.GenerationStats(
        prompt_tokens=9, cached_prompt_tokens=0, output_tokens=4, drafted_per_depth=(2,), total_ms=5.0, seed=3
    )
    second = outrider.GenerationStats(
        prompt_tokens=9, cached_prompt_tokens=8, output_tokens=6, drafted_per_depth=(1, 1), total_ms=7.0, exact=False
    )
    assert outrider.GenerationStats.combined([first, second]) == outrider.GenerationStats(
        prompt_tokens=9, output_tokens=10, drafted_per_depth=(3, 1), total_ms=7.0, exact=False, seed=3
    )
