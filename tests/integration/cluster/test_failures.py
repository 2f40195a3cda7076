"""Losing a drafter costs speed only; losing a verifier costs nothing but time."""

from outrider import Client, Speculation

from tests.integration.cluster.long_request import LONG, PROMPT, drafts_again, plain_answer
from tests.integration.cluster.processes import REPLACEMENT_S, replica_processes, wait_until


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


def test_a_verifier_killed_mid_request_loses_and_repeats_nothing(client: Client) -> None:
    expected = plain_answer(client)
    (victim,) = replica_processes("TargetVerifier")
    with client.stream(PROMPT, sampling=LONG, cache_salt="verifier") as stream:
        next(stream)
        victim.kill()
        result = stream.result()
    assert result.token_ids == expected.token_ids
    assert result.text == expected.text
