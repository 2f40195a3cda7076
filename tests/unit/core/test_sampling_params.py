"""Every sampling value that is out of range is refused with its name and what is allowed."""

from typing import Any

import pytest

from workers.core.errors import InvalidRequestError
from workers.core.proposal import TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationParams, VerificationRule, validated


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature: .*greater than or equal to 0"),
        ({"temperature": float("nan")}, "temperature: .*finite"),
        ({"temperature": 1e9}, "temperature: .*less than or equal to 100"),
        ({"top_k": -1}, "top_k: .*greater than or equal to 0"),
        ({"top_p": 0.0}, "top_p: .*greater than 0"),
        ({"top_p": 1.5}, "top_p: .*less than or equal to 1"),
        ({"min_p": 2.0}, "min_p: .*less than or equal to 1"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty: .*greater than or equal to 0.01"),
        ({"presence_penalty": 3.0}, "presence_penalty: .*less than or equal to 2"),
        ({"frequency_penalty": -3.0}, "frequency_penalty: .*greater than or equal to -2"),
        ({"logit_bias": {5: 101.0}}, "logit_bias.5: .*less than or equal to 100"),
        ({"logit_bias": dict.fromkeys(range(1025), 0.0)}, "logit_bias: .*at most 1024"),
        ({"stop": ("",)}, "stop.0: .*at least 1 character"),
        ({"stop": ("x" * 257,)}, "stop.0: .*at most 256 characters"),
        ({"stop": tuple("abcdefghijklmnopq")}, "stop: .*at most 16 items"),
        ({"stop_token_ids": tuple(range(65))}, "stop_token_ids: .*at most 64"),
        ({"max_tokens": 0}, "max_tokens: .*greater than or equal to 1"),
        ({"min_tokens": 9, "max_tokens": 3}, r"min_tokens \(9\) must not exceed max_tokens \(3\)"),
        ({"seed": -1}, "seed: .*greater than or equal to 0"),
        ({"seed": 2**64}, "seed: .*less than"),
        ({"logprobs": 21}, "logprobs: .*less than or equal to 20"),
        ({"n": 0}, "n: .*greater than or equal to 1"),
        ({"n": 17}, "n: .*less than or equal to 16"),
        ({"top": 3}, "top: Extra inputs are not permitted"),
    ],
)
def test_out_of_range(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        validated(SamplingParams, values)


def test_messages_do_not_repeat_huge_inputs() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validated(SamplingParams, {"stop": ("x" * 100_000,)})
    assert len(str(caught.value)) < 400


def test_requests_resolve_what_the_client_left_open_within_the_servers_limits() -> None:
    limits = TreeBudget(5, 4, 16)
    wish = SpeculationParams(max_depth=9, max_nodes=8)
    request = GenerationRequest.build(
        "r", (1, 2), SamplingParams(), seed=1, limits=limits, default_rule=VerificationRule.REJECTION, speculation=wish
    )
    assert request.budget == TreeBudget(5, 4, 8)
    assert request.rule is VerificationRule.REJECTION
