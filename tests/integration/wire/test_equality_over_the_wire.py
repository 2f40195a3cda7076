"""The promise over real gRPC between real processes: speculation changes speed, never a token."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import behaviours
from tests.fakes.behaviours import Behaviour
from tests.fakes.scripted_drafter import ScriptedDrafter, ThreadedDrafter
from tests.integration.processes import Answer, Server, VerifierClient, drafter_process, verifier_process
from tests.integration.wire.conftest import SPECULATION
from workers.core.proposal import TreeBudget
from workers.core.request import DrafterEndpoint, FinishReason, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule

VOCAB = 512
LIMITS = TreeBudget(4, 3, 12)
MAX_GRACE_S = 1.0  # as in conftest.py
PROMPTS = [tuple(random.Random(i).randrange(3, VOCAB) for _ in range(6 + 9 * i)) for i in range(4)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.8, max_tokens=32, ignore_eos=True, top_p=0.95, repetition_penalty=1.1)


def request(
    prompt: tuple[int, ...],
    sampling: SamplingParams,
    drafters: tuple[DrafterEndpoint, ...] = (),
    *,
    seed: int = 7,
    rule: VerificationRule = VerificationRule.COUPLED,
) -> GenerationRequest:
    mode = SpeculationMode.ON if drafters else SpeculationMode.OFF
    return GenerationRequest.build(
        f"request-{seed}-{time.monotonic_ns()}",
        prompt,
        sampling,
        seed=seed,
        limits=LIMITS,
        speculation=SpeculationParams(mode=mode, rule=rule),
        drafters=drafters,
    )


def at(server: Server) -> tuple[DrafterEndpoint, ...]:
    return (server.endpoint,)


@pytest.fixture(scope="module")
def plain(verifier: Server) -> dict[str, list[Answer]]:
    """Answers without speculation."""
    client = VerifierClient(verifier.address)
    return {
        name: [client.generate(request(p, sampling, seed=i)) for i, p in enumerate(PROMPTS)]
        for name, sampling in (("greedy", GREEDY), ("sampled", SAMPLED))
    }


def equal_alone_and_together(
    client: VerifierClient, drafter: Server, expected: list[Answer], sampling: SamplingParams, rule: VerificationRule
) -> list[Answer]:
    """Answers with the drafter, one request at a time and all at once, which must be the `expected` ones."""
    requests = [request(p, sampling, at(drafter), seed=i, rule=rule) for i, p in enumerate(PROMPTS)]
    answers = [client.generate(r) for r in requests] + client.generate_all(requests)
    assert [a.token_ids for a in answers] == [a.token_ids for a in expected] * 2
    return answers


@pytest.mark.parametrize(
    ("name", "sampling", "rule"),
    [
        ("greedy", GREEDY, VerificationRule.COUPLED),
        ("sampled", SAMPLED, VerificationRule.COUPLED),
        ("greedy", GREEDY, VerificationRule.REJECTION),
        ("greedy", GREEDY, VerificationRule.TYPICAL),
    ],
)
def test_draft_model_in_another_process(
    client: VerifierClient,
    drafter: Server,
    plain: dict[str, list[Answer]],
    name: str,
    sampling: SamplingParams,
    rule: VerificationRule,
) -> None:
    answers = equal_alone_and_together(client, drafter, plain[name], sampling, rule)
    emitted = sum(a.stats.output_tokens for a in answers) / sum(a.stats.verify_steps for a in answers)
    assert emitted > 1.3, "the draft agrees with the target often enough to be worth something"
    assert all(a.stats.exact == rule.exact for a in answers)


@pytest.fixture(scope="module")
def uniting(tiny_target: Path, logs: Path) -> Iterator[VerifierClient]:
    """A verifier that looks tokens up in the text beside what its drafter sends."""
    settings: dict[str, Any] = {
        "kv_cache": {"num_blocks": 256, "block_size": 4},
        "speculation": SPECULATION,
        "ngram": {"combine": True},
    }
    with verifier_process(tiny_target, logs, **settings) as server:
        client = VerifierClient(server.address)
        yield client
        client.channel.close()


@pytest.mark.parametrize(
    ("name", "sampling", "rule"),
    [
        ("greedy", GREEDY, VerificationRule.COUPLED),
        ("sampled", SAMPLED, VerificationRule.COUPLED),
        ("greedy", GREEDY, VerificationRule.REJECTION),
    ],
)
def test_a_draft_model_united_with_prompt_lookup(
    uniting: VerifierClient,
    drafter: Server,
    plain: dict[str, list[Answer]],
    name: str,
    sampling: SamplingParams,
    rule: VerificationRule,
) -> None:
    answers = equal_alone_and_together(uniting, drafter, plain[name], sampling, rule)
    assert sum(a.stats.drafted_tokens for a in answers) > 0


def test_rejection_samples_with_distributions_on_the_wire(client: VerifierClient, drafter: Server) -> None:
    """Another text than plain decoding (another source of randomness); tests/unit/sampling has the statistics."""
    answer = client.generate(request(PROMPTS[1], SAMPLED, at(drafter), rule=VerificationRule.REJECTION))
    assert (len(answer.token_ids), answer.finish_reason) == (32, FinishReason.LENGTH)
    assert answer.stats.accepted_tokens > 3
    assert answer.stats.invalid_proposals == 0


HOSTILE: dict[str, Behaviour] = {
    "constant": behaviours.ConstantToken(5),
    "random": behaviours.RandomTrees(),
    "empty": behaviours.Empty(),
    "stale": behaviours.Stale(behaviours.RandomTrees()),
    "cycle": behaviours.Cycle(),
    "twin siblings": behaviours.TwinSiblings(),
    "too many nodes": behaviours.TooManyNodes(),
    "foreign tokens": behaviours.ForeignTokens(behaviours.RandomTrees()),
    "old epoch": behaviours.WrongEpoch(behaviours.RandomTrees()),
    "future base": behaviours.FutureBaseLen(behaviours.RandomTrees()),
    "flood": behaviours.Flood(behaviours.RandomTrees()),
    "over capacity": behaviours.OverCapacity(),
    "dying": behaviours.Dying(behaviours.RandomTrees()),
    "late": behaviours.Late(behaviours.RandomTrees(), delay_s=0.03),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_useless_and_hostile_drafters(client: VerifierClient, plain: dict[str, list[Answer]], name: str) -> None:
    with ThreadedDrafter(ScriptedDrafter(HOSTILE[name], vocab_size=VOCAB)) as drafter:
        requests = [request(p, SAMPLED, (drafter.endpoint,), seed=i) for i, p in enumerate(PROMPTS)]
        answers = client.generate_all(requests)
        assert drafter.fake.hellos, "the verifier did talk to it"
        assert drafter.fake.violations == []
    assert [a.token_ids for a in answers] == [a.token_ids for a in plain["sampled"]]


def test_an_oracle_is_worth_nearly_its_depth(client: VerifierClient, plain: dict[str, list[Answer]]) -> None:
    """On a busy machine a proposal may come too late for its step: the best of a few answers counts, all are equal."""
    known = [list(p) + a.token_ids for p, a in zip(PROMPTS, plain["sampled"], strict=True)]
    with ThreadedDrafter(ScriptedDrafter(behaviours.Oracle(known), vocab_size=VOCAB)) as drafter:
        answers = [client.generate(request(PROMPTS[2], SAMPLED, (drafter.endpoint,), seed=2)) for _ in range(5)]
    assert all(answer.token_ids == plain["sampled"][2].token_ids for answer in answers)
    assert max(answer.stats.acceptance_length for answer in answers) > 3.5


def test_kill_9_in_the_middle_and_reattachment(
    client: VerifierClient, tiny_draft: Path, logs: Path, plain: dict[str, list[Answer]]
) -> None:
    with drafter_process(tiny_draft, logs) as first:
        steps = client.stream(request(PROMPTS[3], SAMPLED, at(first), seed=3))
        begun = [next(steps) for _ in range(4)]
        first.kill()
        rest = client.collect(steps)
        port = int(first.address.rsplit(":", 1)[1])
    assert [t for s in begun for t in s.token_ids] + rest.token_ids == plain["sampled"][3].token_ids
    with drafter_process(tiny_draft, logs, port=port) as second:  # the same address, another incarnation
        deadline = time.monotonic() + 20
        while client.generate(request(PROMPTS[3], SAMPLED, at(second), seed=3)).stats.drafted_tokens == 0:
            assert time.monotonic() < deadline, "the verifier never came back to the restarted drafter"


def test_a_frozen_drafter_costs_a_bounded_delay_and_moves_on(
    client: VerifierClient, tiny_draft: Path, logs: Path, drafter: Server, plain: dict[str, list[Answer]]
) -> None:
    with drafter_process(tiny_draft, logs) as frozen:
        client.generate(request(PROMPTS[0], SAMPLED, at(frozen), seed=0))  # connected
        frozen.freeze()
        changes, deadline_s = 0, time.monotonic() + 20
        while not changes:  # an answer may be over before it is sure that the drafter is silent
            started_s = time.monotonic()
            assert started_s < deadline_s, "the request never left the frozen drafter"
            answer = client.generate(request(PROMPTS[3], SAMPLED, at(frozen) + at(drafter), seed=3))
            assert answer.token_ids == plain["sampled"][3].token_ids
            assert time.monotonic() - started_s < MAX_GRACE_S + 5, "one wait of max_grace_ms, not more"
            changes = answer.stats.drafter_changes


def test_a_client_that_vanishes_frees_its_blocks_within_a_second(client: VerifierClient, drafter: Server) -> None:
    before = client.info().free_kv_blocks
    endless = SamplingParams(temperature=0.8, ignore_eos=True)
    gone = VerifierClient(client.address)
    steps = gone.stream(request(PROMPTS[0], endless, at(drafter)))
    next(steps)
    assert client.info().free_kv_blocks < before
    gone.channel.close()
    started = time.monotonic()
    while client.info().free_kv_blocks < before or client.info().running_requests:
        assert time.monotonic() - started < 1.0, "the blocks of a vanished client are still held"
        time.sleep(0.02)


def test_servers_that_are_told_to_stop_end_cleanly(tiny_target: Path, tiny_draft: Path, logs: Path) -> None:
    with verifier_process(tiny_target, logs) as verifier, drafter_process(tiny_draft, logs) as drafter:
        client = VerifierClient(verifier.address)
        assert client.generate(request(PROMPTS[0], GREEDY, at(drafter))).stats.drafted_tokens > 0
        client.channel.close()
        assert verifier.stop() == 0
        assert drafter.stop() == 0
