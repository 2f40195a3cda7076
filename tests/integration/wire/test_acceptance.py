"""Acceptance floors per depth for a fixed pair of models: a silent loss of speed fails here.

The pair is the tiny target and its noisy copy. Measured: greedy 1.00 / 0.97 / 0.66, coupled 0.99 / 0.89 / 0.74,
rejection 0.85 / 0.73 / 0.52; the floors stand a little below.
"""

import random
from itertools import zip_longest

import pytest

from tests.integration.processes import Server, VerifierClient
from tests.integration.wire.test_equality_over_the_wire import at, request
from workers.core.sampling_params import SamplingParams, VerificationRule

PROMPTS = [tuple(random.Random(100 + i).randrange(3, 512) for _ in range(20)) for i in range(8)]
FLOORS = {
    "greedy": (0.93, 0.88, 0.55),
    "coupled": (0.92, 0.82, 0.64),
    "rejection": (0.72, 0.6, 0.38),
}


@pytest.mark.parametrize(
    ("name", "temperature", "rule"),
    [
        ("greedy", 0.0, VerificationRule.COUPLED),
        ("coupled", 0.8, VerificationRule.COUPLED),
        ("rejection", 0.8, VerificationRule.REJECTION),
    ],
)
def test_acceptance_per_depth(
    client: VerifierClient, drafter: Server, name: str, temperature: float, rule: VerificationRule
) -> None:
    sampling = SamplingParams(temperature=temperature, max_tokens=40, ignore_eos=True)
    requests = [request(p, sampling, at(drafter), seed=i, rule=rule) for i, p in enumerate(PROMPTS)]
    client.generate(requests[0])  # the first one may find the drafter not connected yet
    stats = [client.generate(r).stats for r in requests]
    drafted = [sum(column) for column in zip_longest(*(s.drafted_per_depth for s in stats), fillvalue=0)]
    accepted = [sum(column) for column in zip_longest(*(s.accepted_per_depth for s in stats), fillvalue=0)]
    rates = [a / d for a, d in zip(accepted, drafted, strict=True)][: len(FLOORS[name])]
    assert all(rate >= floor for rate, floor in zip(rates, FLOORS[name], strict=True)), rates
