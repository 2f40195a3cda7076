"""Losing a drafter costs speed only; losing a verifier costs nothing but time; redeploying costs no request."""

import threading
from pathlib import Path

from outrider import Client, Generation, SamplingParams, Speculation

from cluster.local import LocalCluster
from tests.integration.cluster.processes import replica_processes, wait_until

PROMPT = "A storm came up"
LONG = SamplingParams(max_tokens=300, temperature=0.7, seed=11, ignore_eos=True)
REPLACEMENT_S = 60.0


def plain_answer(client: Client) -> Generation:
    return client.generate(PROMPT, sampling=LONG, speculation=Speculation.off())


def test_a_drafter_killed_mid_request_changes_nothing(client: Client) -> None:
    expected = plain_answer(client)
    (victim,) = replica_processes("DraftProposer")
    with client.stream(PROMPT, sampling=LONG, speculation=Speculation.on(), cache_salt="kill") as stream:
        for _ in range(3):
            next(stream)
        victim.kill()
        result = stream.result()
    assert result.token_ids == expected.token_ids
    assert result.attempts == 1
    assert result.stats.plain_steps > 0
    # Serve starts another; it is found, and used again.
    wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)
    (successor,) = replica_processes("DraftProposer")
    assert successor.pid != victim.pid


def drafts_again(client: Client, expected: Generation) -> bool:
    result = client.generate(PROMPT, sampling=LONG, speculation=Speculation.on())
    assert result.token_ids == expected.token_ids
    return result.stats.accepted_tokens > 0


def test_a_verifier_killed_mid_request_loses_and_repeats_nothing(client: Client) -> None:
    expected = plain_answer(client)
    (victim,) = replica_processes("TargetVerifier")
    with client.stream(PROMPT, sampling=LONG, cache_salt="verifier") as stream:
        next(stream)
        victim.kill()
        result = stream.result()
    assert result.token_ids == expected.token_ids
    assert result.text == expected.text


def test_redeploying_the_drafters_lets_a_running_request_finish(
    client: Client, cluster: LocalCluster, serve_config: Path
) -> None:
    from cluster.config.loader import load_config

    expected = plain_answer(client)
    (before,) = replica_processes("DraftProposer")
    (verifier,) = replica_processes("TargetVerifier")
    results: list[Generation] = []

    def run() -> None:
        results.append(client.generate(PROMPT, sampling=LONG, speculation=Speculation.on(), cache_salt="redeploy"))

    reader = threading.Thread(target=run)
    reader.start()
    changed = serve_config.with_name("changed.yaml")
    changed.write_text(serve_config.read_text().replace("grow_ahead: 1", "grow_ahead: 2"))
    cluster.deploy(load_config(changed).serve_config)
    reader.join(timeout=60.0)
    assert results[0].token_ids == expected.token_ids
    wait_until(lambda: not before.is_running() and len(replica_processes("DraftProposer")) == 1, REPLACEMENT_S)
    cluster.wait_ready(REPLACEMENT_S)
    assert verifier.is_running()  # untouched by an update of the other pool
    wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)
