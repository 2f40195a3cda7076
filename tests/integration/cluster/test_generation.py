"""Prompts through the SDK, Serve's ingress, a verifier process and a drafter process."""

import asyncio
import os
import time

import psutil
import pytest
from outrider import (
    AsyncClient,
    Client,
    ContextLengthError,
    InvalidRequestError,
    NotFoundError,
    RefusedError,
    SamplingParams,
    Speculation,
)

from tests.integration.cluster.processes import on_second_node, replica_processes, wait_until

PROMPT = "The quick brown fox"


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_does_not_change_the_answer(client: Client, temperature: float) -> None:
    sampling = SamplingParams(max_tokens=48, temperature=temperature, seed=7, ignore_eos=True)
    plain = client.generate(PROMPT, sampling=sampling, speculation=Speculation.off())
    fast = client.generate(PROMPT, sampling=sampling, speculation=Speculation.on())
    assert plain.token_ids == fast.token_ids
    assert plain.text == fast.text
    assert len(plain.token_ids) == 48
    assert plain.stats.drafted_tokens == 0
    assert fast.stats.accepted_tokens > 0
    assert fast.stats.verify_steps < plain.stats.verify_steps


async def test_concurrent_requests_get_the_answers_they_get_alone(address: str) -> None:
    prompts = [f"Number {i}:" for i in range(6)]
    async with AsyncClient(address, timeout=60.0) as client:
        alone = [
            await client.generate(one, max_tokens=24, temperature=0.0, speculation=Speculation.off()) for one in prompts
        ]
        together = await asyncio.gather(*(client.generate(one, max_tokens=24, temperature=0.0) for one in prompts))
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]


def test_pools_are_separate_processes(client: Client) -> None:
    roles = {one.role: one for one in client.server_info().replicas}
    assert set(roles) == {"verifier", "drafter"}
    verifier, drafter = replica_processes("TargetVerifier"), replica_processes("DraftProposer")
    assert len(verifier) == len(drafter) == 1
    pids = {os.getpid(), verifier[0].pid, drafter[0].pid}
    assert len(pids) == 3
    for role, process in (("verifier", verifier[0]), ("drafter", drafter[0])):
        port = int(roles[role].address.rpartition(":")[2])
        listening = {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        assert port in listening


def test_drafters_run_on_the_other_node(client: Client) -> None:
    """And still take part: the streams between the pools cross nodes."""
    (verifier,), (drafter,) = replica_processes("TargetVerifier"), replica_processes("DraftProposer")
    assert on_second_node(drafter)
    assert not on_second_node(verifier)
    result = client.generate(PROMPT, max_tokens=32, temperature=0.0, ignore_eos=True, speculation=Speculation.on())
    assert result.stats.accepted_tokens > 0


def test_model_info_and_token_count(client: Client) -> None:
    info = client.model_info()
    assert info.model == "tiny"
    assert (info.max_depth, info.max_width, info.max_nodes) == (4, 2, 8)
    assert client.count_tokens(PROMPT).prompt_tokens == len(client.count_tokens(PROMPT).token_ids) > 0


def test_bad_requests_are_refused_in_words(client: Client) -> None:
    info = client.model_info()
    with pytest.raises(InvalidRequestError, match="empty"):
        client.generate("")
    with pytest.raises(InvalidRequestError, match="temperature"):
        client.generate(PROMPT, temperature=-1.0)
    with pytest.raises(InvalidRequestError, match="stop"):
        client.generate(PROMPT, stop=["x"] * 17)
    with pytest.raises(ContextLengthError, match=str(info.context_length)):
        client.generate(PROMPT, max_tokens=info.context_length + 1)
    with pytest.raises(NotFoundError, match="tiny"):
        client.generate(PROMPT, model="other")
    with pytest.raises(RefusedError, match="typical"):
        client.generate(PROMPT, speculation=Speculation.on(rule="typical"))
    with pytest.raises(InvalidRequestError, match=str(info.vocab_size)):
        client.generate(token_ids=[info.vocab_size])
    assert client.generate(PROMPT, max_tokens=4).token_ids  # and the service goes on


def test_a_reader_who_leaves_frees_the_blocks(client: Client) -> None:
    """Long before the answer would have ended by itself. Serve does not pass on every cancellation (docs/faults.md): of
    several readers two must be heard."""
    started_s = time.monotonic()
    client.generate(PROMPT, max_tokens=480, ignore_eos=True, cache_salt="stayer")
    whole_s = time.monotonic() - started_s
    heard = 0
    for reader in range(6):
        with client.stream(PROMPT, max_tokens=480, ignore_eos=True, cache_salt=f"leaver {reader}") as stream:
            next(stream)
        left_s = time.monotonic()
        wait_until(lambda: not any(one.running_requests for one in client.server_info().replicas), timeout_s=60.0)
        heard += time.monotonic() - left_s < 0.6 * whole_s
        if heard == 2:
            return
    pytest.fail(f"of 6 readers who left {heard} were heard")
