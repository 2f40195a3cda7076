"""Requests as they go out."""

from random import Random
from typing import Any

import pytest
from outrider import InvalidRequestError, SamplingParams, Speculation, wire
from outrider.errors import IncompatibleError
from outrider.v1 import common_pb2, generation_pb2


def build(prompt: str | None = "hi", **options: Any) -> generation_pb2.GenerateRequest:
    return wire.generate_request(prompt, options, Random(0))  # type: ignore[arg-type]


def test_every_option_goes_on_the_wire() -> None:
    request = build(
        sampling=SamplingParams(temperature=0.5, top_k=4, stop=("a", "b"), logit_bias={7: -1.0}),
        top_p=0.9,
        seed=11,
        speculation=Speculation.on(depth=3, width=2, nodes=8, rule="rejection"),
        cache_salt="tenant",
        deadline=1.5,
        request_id="me",
        model="big",
    )
    assert request == generation_pb2.GenerateRequest(
        request_id="me",
        model="big",
        text="hi",
        sampling=common_pb2.SamplingParams(
            temperature=0.5, top_k=4, top_p=0.9, stop=["a", "b"], logit_bias={7: -1.0}, seed=11
        ),
        speculation=common_pb2.SpeculationParams(
            mode="SPECULATION_MODE_ON", max_depth=3, max_width=2, max_nodes=8, rule="VERIFICATION_RULE_REJECTION"
        ),
        cache_salt="tenant",
        deadline_ms=1500,
    )


def test_what_is_not_given_is_not_sent() -> None:
    request = build()
    request.sampling.ClearField("seed")
    request.ClearField("request_id")
    assert request == generation_pb2.GenerateRequest(text="hi", sampling=common_pb2.SamplingParams())
    assert not build(speculation=Speculation.auto()).speculation.HasField("max_depth")


def test_zero_is_sent() -> None:
    sampling = build(temperature=0, logprobs=0, ignore_eos=False, seed=0).sampling
    assert all(sampling.HasField(name) for name in ("temperature", "logprobs", "ignore_eos", "seed"))


def test_seed_and_request_id_are_always_set_and_drawn_from_the_given_source() -> None:
    first, again = build(), build()
    assert first == again
    assert first.sampling.HasField("seed")
    assert len(first.request_id) == 32
    other = wire.generate_request("hi", {}, Random(1))
    assert (other.request_id, other.sampling.seed) != (first.request_id, first.sampling.seed)


def test_fields_given_directly_take_precedence() -> None:
    sampling = build(sampling=SamplingParams(temperature=0.5, max_tokens=9, seed=1), temperature=None, seed=2).sampling
    assert not sampling.HasField("temperature")
    assert (sampling.max_tokens, sampling.seed) == (9, 2)


def test_prompts() -> None:
    assert build(None, token_ids=[1, 2]).tokens.token_ids == [1, 2]
    chat = build(None, messages=[{"role": "user", "content": "x"}]).chat
    assert [(message.role, message.content) for message in chat.messages] == [("user", "x")]
    assert wire.count_request("x", None).text == "x"


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (None, {}, "give exactly one of a text prompt, messages or token_ids"),
        ("x", {"token_ids": [1]}, "give exactly one of"),
        (5, {}, "prompt: expected a text, got 5"),
        (None, {"messages": []}, "messages: expected a sequence of at least one chat message"),
        (None, {"messages": "hello"}, "messages: expected a sequence"),
        (None, {"messages": [{"role": "tool", "content": "x"}]}, "unknown chat role 'tool'"),
        (None, {"token_ids": [-1]}, r"token_ids\[0\]: expected an integer"),
        (
            "x",
            {"temprature": 1.0},
            r"unknown option 'temprature' \(did you mean 'temperature'\?\); allowed are cache_salt",
        ),
        ("x", {"zzz": 1.0}, "unknown option 'zzz'; allowed are"),
        ("x", {"request_id": ""}, "request_id: expected 1 to 128 characters, got 0"),
        ("x", {"request_id": "r" * 129}, "request_id: expected 1 to 128 characters, got 129"),
        ("x", {"request_id": 5}, "request_id: expected a text"),
        ("x", {"deadline": 0}, "deadline: expected a number of seconds above 0"),
        ("x", {"deadline": 1e9}, "deadline: expected a number of seconds above 0 and up to 4294967"),
        ("x", {"sampling": {"top_k": 1}}, "sampling: expected SamplingParams, got dict"),
        ("x", {"speculation": "off"}, r"speculation: expected Speculation.off\(\), .auto\(\) or .on\(...\), got str"),
        ("x", {"cache_salt": None}, "cache_salt: expected a text"),
        ("x", {"model": 1}, "model: expected a text"),
        ("a\ud800", {}, r"prompt: not valid Unicode: the lone surrogate '\\ud800' at character 1 cannot be sent"),
        ("x", {"stop": ["y", "\ud800"]}, r"stop\[1\]: not valid Unicode"),
        ("x", {"cache_salt": "\udcff"}, "cache_salt: not valid Unicode"),
        ("x", {"model": "\ud800"}, "model: not valid Unicode"),
        ("x", {"request_id": "\ud800"}, "request_id: not valid Unicode"),
        (
            None,
            {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "\ud800"}]},
            r"messages\[1\]: content: not valid Unicode",
        ),
        (None, {"messages": [{"role": "\ud800", "content": "x"}]}, r"messages\[0\]: unknown chat role '\\ud800'"),
    ],
)
def test_a_bad_request_is_refused_before_it_is_sent(prompt: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        build(prompt, **options)


def test_count_tokens_needs_one_prompt() -> None:
    with pytest.raises(InvalidRequestError, match="give exactly one of a text prompt or messages"):
        wire.count_request(None, None)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("max_depth: Input should be at least 1 (got 0)", "depth: Input should be at least 1 (got 0)"),
        ("max_width: too much", "width: too much"),
        ("max_nodes: too much", "nodes: too much"),
        ("max_tokens: too much", "max_tokens: too much"),
        ("the node of max_depth: none", "the node of max_depth: none"),
    ],
)
def test_a_refused_field_carries_the_name_that_the_caller_wrote(said: str, read: str) -> None:
    assert wire.message_in_sdk_names(said) == read


def test_an_enum_value_of_a_newer_server_is_named() -> None:
    with pytest.raises(IncompatibleError, match="finish_reason 99, which this version of the SDK does not know"):
        wire.finish_reason(99)
    with pytest.raises(IncompatibleError, match="finish_reason 0"):
        wire.finish_reason(0)


def test_logprobs_are_read() -> None:
    top = common_pb2.TopLogprob(token_id=4, logprob=-0.5)
    message = generation_pb2.GenerationDelta(
        index=1, text="x", token_ids=[3], logprobs=[common_pb2.TokenLogprob(token_id=3, logprob=-1.5, top=[top])]
    )
    (logprob,) = wire.delta(message).logprobs
    assert (logprob.token_id, logprob.logprob) == (3, -1.5)
    assert [(item.token_id, item.logprob) for item in logprob.top] == [(4, -0.5)]
