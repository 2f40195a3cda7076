"""Each kind of bad input gets an error that says what is allowed; the service goes on."""

from typing import Any

import pytest
from outrider.v1 import common_pb2
from outrider.v1 import generation_pb2 as pb

from tests.unit.gateway.conftest import StartHarness, ask
from workers.core.errors import (
    ContextLengthError,
    IncompatibleError,
    InvalidRequestError,
    NotFoundError,
    OutriderError,
    RefusedError,
    UnavailableError,
)


def _chat(*roles: str) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        chat=pb.ChatMessages(messages=[pb.ChatMessage(role=role, content="Hi") for role in roles])
    )


def _with(**fields: Any) -> pb.GenerateRequest:
    message = ask()
    message.MergeFrom(pb.GenerateRequest(**fields))
    return message


def _rule(rule: int) -> pb.GenerateRequest:
    message = ask()
    message.speculation.rule = rule  # type: ignore[assignment]  # also numbers that are no rule
    return message


def _unknown_field() -> pb.GenerateRequest:
    message = pb.GenerateRequest()
    message.ParseFromString(ask().SerializeToString() + b"\xa0\x06\x01")  # field 100 = 1
    return message


CASES: dict[str, tuple[pb.GenerateRequest, type[OutriderError], str]] = {
    "unknown model": (_with(model="gpt"), NotFoundError, "model 'gpt' is not served here; the served model is 'tiny'"),
    "a model whose name would steer a terminal": (
        _with(model="\x1b[31m\n" + "x" * 3000),
        NotFoundError,
        r"^model '\\x1b\[31m\\nx+\.\.\.x+' is not served here; the served model is 'tiny'$",
    ),
    "no prompt": (pb.GenerateRequest(), InvalidRequestError, "prompt: none is given; one of text, chat or tokens"),
    "empty text": (ask(""), InvalidRequestError, "prompt: the text is empty; at least one character is needed"),
    "empty chat": (_chat(), InvalidRequestError, "prompt: none is given|chat: the conversation is empty"),
    "empty tokens": (
        pb.GenerateRequest(tokens=pb.TokenIds()),
        InvalidRequestError,
        "prompt: the list of tokens is empty; at least one token is needed",
    ),
    "unknown role": (_chat("user", "robot"), InvalidRequestError, r"messages\.1\.role: 'robot' is not known; allowed"),
    "a long role": (
        _chat("x" * 3000),
        InvalidRequestError,
        r"^chat\.messages\.0\.role: 'x+\.\.\.x+' is not known; allo",
    ),
    "foreign prompt token": (
        pb.GenerateRequest(tokens=pb.TokenIds(token_ids=[5, 512])),
        InvalidRequestError,
        r"prompt: token id 512 is outside the vocabulary \(0 to 511\)",
    ),
    "context": (
        ask(max_tokens=510),
        ContextLengthError,
        r"prompt \(5 tokens\) \+ max_tokens \(510\) = 515 tokens exceed the context of 512 tokens; .* at most 507",
    ),
    "prompt fills the context": (
        pb.GenerateRequest(tokens=pb.TokenIds(token_ids=[5] * 512)),
        ContextLengthError,
        "the prompt has 512 tokens; the context of 512 tokens has room for at most 511 and one output token",
    ),
    "temperature": (ask(temperature=-1), InvalidRequestError, r"temperature: .*greater than or equal to 0 \(got -1"),
    "absurd temperature": (ask(temperature=1e9), InvalidRequestError, "temperature: .*less than or equal to 100"),
    "nan": (ask(top_p=float("nan")), InvalidRequestError, "top_p: "),
    "top_p": (ask(top_p=0), InvalidRequestError, "top_p: .*greater than 0"),
    "min_p": (ask(min_p=1.5), InvalidRequestError, "min_p: .*less than or equal to 1"),
    "penalty": (ask(repetition_penalty=0), InvalidRequestError, "repetition_penalty: .*greater than or equal to 0.01"),
    "max_tokens": (ask(max_tokens=0), InvalidRequestError, "max_tokens: .*greater than or equal to 1"),
    "min_tokens": (ask(min_tokens=21), InvalidRequestError, r"min_tokens \(21\) must not exceed max_tokens \(20\)"),
    "logprobs": (ask(logprobs=21), InvalidRequestError, "logprobs: .*less than or equal to 20"),
    "n": (ask(n=17), InvalidRequestError, "n: .*less than or equal to 16"),
    "n over the server's": (ask(n=5), InvalidRequestError, r"n: at most 4 answers are allowed here \(got 5\)"),
    "too many stop strings": (ask(stop=["x"] * 17), InvalidRequestError, "stop: .*at most 16"),
    "empty stop string": (ask(stop=[""]), InvalidRequestError, r"stop\.0: .*at least 1 character"),
    "long stop string": (ask(stop=["x" * 257]), InvalidRequestError, r"stop\.0: .*at most 256 characters"),
    "foreign stop token": (
        ask(stop_token_ids=[512]),
        InvalidRequestError,
        r"stop_token_ids: token id 512 is outside the vocabulary \(0 to 511\)",
    ),
    "foreign bias": (ask(logit_bias={600: 1.0}), InvalidRequestError, "logit_bias: token id 600 is outside"),
    "bias": (ask(logit_bias={6: 101.0}), InvalidRequestError, "logit_bias.6: .*less than or equal to 100"),
    "request_id": (
        pb.GenerateRequest(request_id="x" * 129, text="a"),
        InvalidRequestError,
        r"request_id: at most 128 characters are allowed \(got 129\)",
    ),
    "cache_salt": (_with(cache_salt="ä" * 129), InvalidRequestError, r"cache_salt: at most 256 bytes .* \(got 258\)"),
    "typical": (
        _rule(common_pb2.VERIFICATION_RULE_TYPICAL),
        RefusedError,
        "verification rule typical is not allowed by this server; allowed: coupled, rejection",
    ),
    "no such rule": (_rule(9), InvalidRequestError, "rule: 9 is not a VerificationRule; allowed: .*COUPLED"),
    "depth": (
        _with(speculation=common_pb2.SpeculationParams(max_depth=0)),
        InvalidRequestError,
        "max_depth: .*greater than or equal to 1",
    ),
    "unknown field": (_unknown_field(), InvalidRequestError, "GenerateRequest: unknown field number 100; known fields"),
    "message size": (ask("x" * 5000), InvalidRequestError, r"the message has \d+ bytes; at most 4096 are allowed"),
}


@pytest.mark.parametrize("case", CASES)
async def test_refused_with_an_explanation(gateway: StartHarness, case: str) -> None:
    message, kind, problem = CASES[case]
    async with gateway(max_request_bytes=4096, max_answers=4) as harness:
        with pytest.raises(kind, match=problem) as caught:
            await harness.run(message)
        assert type(caught.value) is kind
        assert not harness.verifiers[0].calls
        assert harness.service.active_requests == 0
        assert len(await harness.run(ask(max_tokens=3))) == 3  # started, one delta, finished


async def test_max_tokens_over_the_servers_ceiling(gateway: StartHarness) -> None:
    async with gateway(max_output_tokens=10) as harness:
        with pytest.raises(InvalidRequestError, match=r"max_tokens: at most 10 are allowed here \(got 20\)"):
            await harness.run(ask())
        message = ask(min_tokens=11)
        message.sampling.ClearField("max_tokens")
        with pytest.raises(InvalidRequestError, match="min_tokens: 11 exceeds the 10 tokens"):
            await harness.run(message)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (pb.CountTokensRequest(), "prompt: none is given; one of text or chat is needed"),
        (pb.CountTokensRequest(text="x" * 5000), "at most 4096 are allowed"),
        (
            pb.CountTokensRequest(chat=pb.ChatMessages(messages=[pb.ChatMessage(role="?")])),
            "'\\?' is not known; allowed are system, user, assistant",
        ),
    ],
)
async def test_count_tokens(gateway: StartHarness, message: pb.CountTokensRequest, problem: str) -> None:
    async with gateway(max_request_bytes=4096) as harness:
        with pytest.raises(InvalidRequestError, match=problem):
            await harness.service.count_tokens(message)


async def test_another_models_verifier(gateway: StartHarness) -> None:
    async with gateway() as harness:
        harness.verifiers[0].tokenizer = _OtherTokenizer()  # type: ignore[assignment]
        with pytest.raises(IncompatibleError, match=r"the gateway's tokenizer \(\w+\) is not that of the target model"):
            await harness.service.model()


async def test_no_verifier_yet(gateway: StartHarness) -> None:
    async with gateway(replica_wait_ms=0) as harness:
        states, harness.directory.verifier_records = harness.directory.verifier_records, []
        with pytest.raises(UnavailableError, match="no verifier is available yet"):
            await harness.run(ask())
        harness.directory.verifier_records = states
        await harness.verifiers[0].stop()
        with pytest.raises(UnavailableError, match="verifier verifier-0 does not answer: UNAVAILABLE"):
            await harness.run(ask())


class _OtherTokenizer:
    tokenizer_hash = "other"
    vocab_size = 1
