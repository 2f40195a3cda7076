"""Prefix caches of both pools reach the gateway, and it says what it made of them."""

import json
import subprocess

import pytest
from outrider import Client, NotFoundError, RoutingDecision, Speculation

from tests.integration.cluster.processes import REPLACEMENT_S, wait_until
from tests.integration.cluster.test_command_line import OUTRIDER

PROMPT = list(range(3, 103))  # six blocks of 16 tokens, and some


def ask(client: Client, name: str, salt: str) -> int:
    """Prompt tokens that the verifier really found in its cache."""
    answer = client.generate(
        token_ids=PROMPT,
        max_tokens=8,
        temperature=0.0,
        ignore_eos=True,
        request_id=name,
        cache_salt=salt,
        session_id="s",
        speculation=Speculation.on(),
    )
    return answer.stats.cached_prompt_tokens


def believed(client: Client, name: str) -> dict[str, int]:
    decisions: tuple[RoutingDecision, ...] = client.explain_routing(name)
    return {one.pool: one.candidates[0].cached_tokens for one in decisions}


def test_both_pools_are_routed_by_their_caches(client: Client) -> None:
    assert ask(client, "first", "routing") == 0
    assert believed(client, "first") == {"verifier": 0, "drafter": 0}
    assert ask(client, "second", "routing") == 96
    assert believed(client, "second") == {"verifier": 96, "drafter": 96}
    ask(client, "another salt", "routing-2")
    assert believed(client, "another salt") == {"verifier": 0, "drafter": 0}


def test_what_replicas_announce_outlives_what_the_gateway_expected(client: Client) -> None:
    """The blocks of an answer are known from the verifier's events only: the gateway saw no prompt with them."""
    answer = client.generate(token_ids=PROMPT, max_tokens=60, temperature=0.0, ignore_eos=True, cache_salt="events")
    longer = [*PROMPT, *answer.token_ids]

    def knows() -> bool:
        client.generate(token_ids=longer, max_tokens=1, cache_salt="events", request_id="longer")
        return believed(client, "longer")["verifier"] >= 144

    wait_until(knows, REPLACEMENT_S)


def hits_of_a_chat(client: Client, speculation: Speculation, salt: str) -> tuple[list[int], int]:
    """Prompt tokens found in the cache by each turn, which repeats what was said before; and accepted draft tokens."""
    prompt, hits, accepted = PROMPT[:40], [], 0
    for turn in range(4):
        prompt = [*prompt, *range(200 + 20 * turn, 220 + 20 * turn)]
        answer = client.generate(
            token_ids=prompt,
            max_tokens=27,
            temperature=0.0,
            ignore_eos=True,
            cache_salt=salt,
            session_id=salt,
            speculation=speculation,
        )
        prompt += answer.token_ids
        hits.append(answer.stats.cached_prompt_tokens)
        accepted += answer.stats.output_tokens - answer.stats.verify_steps
    return hits, accepted


def test_speculation_keeps_the_hits(client: Client) -> None:
    """Answers count too: their K/V comes out of trees."""
    without, none = hits_of_a_chat(client, Speculation.off(), "hits without")
    speculating, accepted = hits_of_a_chat(client, Speculation.on(), "hits with")
    assert accepted > 20 > none == 0
    assert sum(without[1:]) > 200
    assert sum(speculating) >= 0.99 * sum(without)


def test_a_decision_names_its_terms(client: Client) -> None:
    ask(client, "terms", "terms")
    decision = client.explain_routing("terms")[0]
    assert (decision.policy, decision.prompt_tokens, decision.num_replicas, decision.num_chosen) == (
        "kv_aware",
        100,
        1,
        1,
    )
    assert {"prefill", "queue", "load", "kv_pressure"} <= set(decision.candidates[0].terms)
    assert decision.candidates[0].cost == pytest.approx(sum(decision.candidates[0].terms.values()))


def test_an_unknown_request(client: Client) -> None:
    with pytest.raises(NotFoundError, match="nothing is known of the routing of request 'nobody'"):
        client.explain_routing("nobody")


def test_the_command(client: Client, address: str) -> None:
    ask(client, "shown", "shown")
    command = [*OUTRIDER, "status", "--target", address, "--explain", "shown"]
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    decisions = json.loads(shown.stdout)["decisions"]
    assert [one["pool"] for one in decisions] == ["verifier", "drafter"]
    table = subprocess.run(command, capture_output=True, text=True, check=True, env=None)
    assert "verifier by kv_aware" in table.stdout
