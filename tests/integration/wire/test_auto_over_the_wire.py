"""Mode `auto` over real gRPC: requests are paused and resumed while others run, and no token changes."""

import json
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import behaviours
from tests.fakes.scripted_drafter import ScriptedDrafter, ThreadedDrafter
from tests.integration.processes import Answer, Server, VerifierClient, verifier_process
from workers.core.proposal import TreeBudget
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule

VOCAB = 512
PROMPTS = [tuple(random.Random(100 + i).randrange(3, VOCAB) for _ in range(8 + 7 * i)) for i in range(4)]
SAMPLED = SamplingParams(temperature=0.8, max_tokens=64, ignore_eos=True, top_p=0.95, repetition_penalty=1.1)
RESTLESS = {
    "max_depth": 4,
    "max_width": 3,
    "max_nodes": 12,
    "profile_ms": 200.0,
    "patience_steps": 1,
    "probe_every_steps": 4,
    "control_every_steps": 16,
}


def requests(
    mode: SpeculationMode,
    drafters: tuple[DrafterEndpoint, ...] = (),
    rule: VerificationRule = VerificationRule.COUPLED,
    sampling: SamplingParams = SAMPLED,
) -> list[GenerationRequest]:
    return [
        GenerationRequest.build(
            f"auto-{index}",
            prompt,
            sampling,
            seed=index,
            limits=TreeBudget(4, 3, 12),
            speculation=SpeculationParams(mode=mode, rule=rule),
            drafters=drafters,
        )
        for index, prompt in enumerate(PROMPTS)
    ]


@pytest.fixture(scope="module")
def trace(logs: Path) -> Path:
    return logs / "auto-trace.jsonl"


@pytest.fixture(scope="module")
def restless(tiny_target: Path, logs: Path, trace: Path) -> Iterator[VerifierClient]:
    """A verifier whose controller changes its mind as often as it can."""
    settings: dict[str, Any] = {
        "kv_cache": {"num_blocks": 256, "block_size": 4},
        "speculation": RESTLESS | {"trace_path": str(trace)},
    }
    with verifier_process(tiny_target, logs, **settings) as server:
        client = VerifierClient(server.address)
        yield client
        client.channel.close()


@pytest.fixture(scope="module")
def plain(restless: VerifierClient) -> list[Answer]:
    return [restless.generate(r) for r in requests(SpeculationMode.OFF)]


def tokens(answers: list[Answer]) -> list[list[int]]:
    return [answer.token_ids for answer in answers]


def test_a_draft_model_alone_and_together(restless: VerifierClient, drafter: Server, plain: list[Answer]) -> None:
    answered, deadline = 0, time.monotonic() + 60
    while not answered:  # late ones count: this target's steps are so short that waiting for a model may never pay
        assert time.monotonic() < deadline, "the drafter never answered a probe"
        alone = [restless.generate(r) for r in requests(SpeculationMode.AUTO, (drafter.endpoint,))]
        together = restless.generate_all(requests(SpeculationMode.AUTO, (drafter.endpoint,)))
        assert tokens(alone) == tokens(together) == tokens(plain)
        answered = sum(a.stats.drafted_tokens + a.stats.stale_proposals for a in alone + together)


@pytest.mark.parametrize("rule", [VerificationRule.COUPLED, VerificationRule.REJECTION])
def test_greedy_under_both_exact_rules(restless: VerifierClient, drafter: Server, rule: VerificationRule) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)
    off = [restless.generate(r) for r in requests(SpeculationMode.OFF, sampling=greedy)]
    auto = restless.generate_all(requests(SpeculationMode.AUTO, (drafter.endpoint,), rule, greedy))
    assert tokens(auto) == tokens(off)


def test_a_useless_drafter_is_left_alone(restless: VerifierClient, plain: list[Answer]) -> None:
    with ThreadedDrafter(ScriptedDrafter(behaviours.RandomTrees(), vocab_size=VOCAB)) as drafter:
        always = restless.generate_all(requests(SpeculationMode.ON, (drafter.endpoint,)))
        auto = restless.generate_all(requests(SpeculationMode.AUTO, (drafter.endpoint,)))
        assert drafter.fake.violations == []
    assert tokens(always) == tokens(auto) == tokens(plain)
    assert sum(a.stats.drafted_tokens for a in auto) < 0.7 * sum(a.stats.drafted_tokens for a in always)


def test_a_good_drafter_is_found_whatever_was_seen_before(restless: VerifierClient, plain: list[Answer]) -> None:
    known = [list(p) + a.token_ids for p, a in zip(PROMPTS, plain, strict=True)]
    deadline = time.monotonic() + 60
    with ThreadedDrafter(ScriptedDrafter(behaviours.Oracle(known), vocab_size=VOCAB)) as drafter:
        while True:
            answer = restless.generate(requests(SpeculationMode.AUTO, (drafter.endpoint,))[2])
            assert answer.token_ids == plain[2].token_ids
            if answer.stats.acceptance_length > 1.5:
                break
            assert time.monotonic() < deadline, "an oracle is not taken up"


def test_requests_were_paused_and_came_back(restless: VerifierClient, trace: Path) -> None:
    active = [json.loads(line)["active"] > 0 for line in trace.read_text().splitlines()]
    assert {True, False} <= set(active)
    assert sum(before != after for before, after in pairwise(active)) >= 4
