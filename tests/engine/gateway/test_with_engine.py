"""The gateway in front of real engines over real gRPC: what it holds is enough to go on, token for token."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from outrider.v1 import common_pb2
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.gateway.service import GatewayService
from cluster.router.membership import ReplicaRecord
from tests.fakes.fake_verifier import FakeDirectory
from tests.unit.gateway.conftest import ask, finished_of, text_of, tokens_of
from workers.core.config import KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.text.tokenizer import Tokenizer
from workers.verifier.server import VerifierServer

SAMPLING: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "frequency_penalty": 0.3, "max_tokens": 60}


@dataclass
class _Cluster:
    service: GatewayService
    directory: FakeDirectory
    servers: list[VerifierServer]


@pytest.fixture
async def two_engines(tiny_target: Path, tokenizer: Tokenizer) -> AsyncIterator[_Cluster]:
    config = VerifierConfig(
        model=ModelConfig(model=str(tiny_target), dtype="float32", num_threads=1),
        kv_cache=KvCacheConfig(num_blocks=64),
        method="ngram",
        speculation=SpeculationConfig(profile_ms=0.0),
    )
    servers = [VerifierServer(config, verifier_id=f"verifier-{i}", incarnation=i) for i in range(2)]
    states = []
    for i, server in enumerate(servers):
        address = await server.start()
        fingerprint = str(server.info()["model_fingerprint"])
        hash_ = tokenizer.tokenizer_hash
        states.append(ReplicaRecord("verifier", f"verifier-{i}", address, i, "tiny", fingerprint, hash_, 16))
    directory = FakeDirectory(states)
    service = GatewayService(
        config=GatewayConfig(replica_wait_ms=2000),
        model_name="tiny",
        tokenizer=tokenizer,
        directory=directory,
        version="1",
        clock=time.monotonic,
        rng=random.Random(0),
    )
    yield _Cluster(service, directory, servers)
    await service.close()
    for server in servers:
        await server.stop()


async def _run(cluster: _Cluster, message: pb.GenerateRequest) -> list[pb.GenerateResponse]:
    return [response async for response in cluster.service.generate(message)]


async def test_a_verifier_that_stops_mid_stream(two_engines: _Cluster) -> None:
    whole = await _run(two_engines, ask(n=2, **SAMPLING))
    stream = two_engines.service.generate(ask(n=2, **SAMPLING))
    received = [await anext(stream) for _ in range(12)]
    stopping = asyncio.create_task(two_engines.servers[0].stop())
    received += [response async for response in stream]
    await stopping
    for index in range(2):
        assert tokens_of(received, index) == tokens_of(whole, index)
        assert text_of(received, index) == text_of(whole, index)
        assert finished_of(received, index).stats.output_tokens == 60


async def test_a_client_that_comes_back(two_engines: _Cluster, tokenizer: Tokenizer) -> None:
    probe = tokens_of(await _run(two_engines, ask(**SAMPLING)))
    stop = [tokenizer.decode(probe)[40:43]]
    whole = await _run(two_engines, ask(stop=stop, **SAMPLING))
    assert finished_of(whole).stop_string == stop[0]
    for received in range(2, len(whole), 3):
        again = ask(stop=stop, **SAMPLING)
        tokens, text = tokens_of(whole[:received]), text_of(whole[:received])
        again.resume.add(index=0, token_ids=tokens, text_length=len(text))
        rest = await _run(two_engines, again)
        assert tokens + tokens_of(rest) == tokens_of(whole)
        assert text + text_of(rest) == text_of(whole)
        assert finished_of(rest).finish_reason == common_pb2.FINISH_REASON_STOP


async def test_a_client_that_vanishes_frees_the_blocks(two_engines: _Cluster) -> None:
    stream = two_engines.service.generate(ask(max_tokens=400, ignore_eos=True))
    for _ in range(3):
        await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(1.0):
        while not all(server.engine.is_idle for server in two_engines.servers):
            await asyncio.sleep(0.01)
    info = await two_engines.service.get_server_info(pb.GetServerInfoRequest())
    assert [replica.running_requests for replica in info.replicas] == [0, 0]
    assert all(replica.free_kv_blocks == replica.total_kv_blocks for replica in info.replicas)


async def test_conversations_stay_where_their_blocks_are(two_engines: _Cluster) -> None:
    """What the gateway believes to be cached is what the verifier then finds, also of answers."""
    chats = [list(range(10 + 100 * i, 90 + 100 * i)) for i in range(4)]
    homes: dict[int, set[str]] = {i: set() for i in range(4)}
    for turn in range(3):
        for i, tokens in enumerate(chats):
            message = ask(max_tokens=40, ignore_eos=True)
            message.request_id = f"{i}-{turn}"
            message.tokens.token_ids.extend(tokens)
            await _announced(two_engines)
            responses = await _run(two_engines, message)
            decision = two_engines.service.explain_routing(message.request_id)[0]
            assert decision.candidates[0].cached_tokens == finished_of(responses).stats.cached_prompt_tokens
            assert decision.candidates[0].cached_tokens >= (len(tokens) - 15 if turn else 0)
            homes[i].add(decision.candidates[0].replica_id)
            tokens += [*tokens_of(responses), 7, 8, 9]
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) == 2


async def _announced(cluster: _Cluster) -> None:
    """Wait until the gateway has heard of everything that the engines hold."""
    pool = cluster.service._pool
    pool.refresh()
    async with asyncio.timeout(60):
        while any(
            pool._verifiers.index.held_by(number) != len(server.engine.events._blocks)
            for number, server in enumerate(cluster.servers)
        ):
            await asyncio.sleep(0.01)
