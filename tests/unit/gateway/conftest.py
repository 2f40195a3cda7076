"""A gateway in front of fake verifiers, over real gRPC in one process."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from outrider.v1 import common_pb2, verifier_pb2
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.gateway.grpc_ingress import GrpcIngress
from cluster.gateway.service import GatewayService
from tests.fakes.fake_verifier import FakeDirectory, FakeVerifier, pseudo_random_tokens
from workers.text.tokenizer import Tokenizer

PROMPT = "The river rises"
BUSY = verifier_pb2.ReplicaLoad(running_requests=5, max_running_requests=8)


@dataclass
class Harness:
    """`service` in front of `verifiers`; `directory` can be changed while it runs."""

    service: GatewayService
    directory: FakeDirectory
    verifiers: list[FakeVerifier]

    async def settle(self) -> None:
        """Wait until the gateway has heard the load of every verifier."""
        async with asyncio.timeout(60):
            self.service.refresh()
            while not all(self.service._pool.load(one).max_running_requests for one in self.directory.verifiers()):
                await asyncio.sleep(0.01)

    async def run(self, message: pb.GenerateRequest) -> list[pb.GenerateResponse]:
        return [response async for response in self.service.generate(message)]


class Ingress(GrpcIngress):
    """The rpc methods of one gateway without Serve around them."""

    def __init__(self, service: GatewayService) -> None:
        self.service = service

    async def explain(self, message: pb.ExplainRoutingRequest) -> pb.ExplainRoutingResponse:
        return pb.ExplainRoutingResponse(decisions=self.service.explain_routing(message.request_id))


StartHarness = Callable[..., AbstractAsyncContextManager[Harness]]


@pytest.fixture(scope="session")
def tokenizer(tiny_target: Path) -> Tokenizer:
    return Tokenizer.load(str(tiny_target))


@pytest.fixture
def gateway(tokenizer: Tokenizer) -> StartHarness:
    """Start with `async with gateway(FakeVerifier arguments of each ...) as harness`; settings by keyword."""

    @asynccontextmanager
    async def start(*verifiers: dict[str, Any], **settings: Any) -> AsyncIterator[Harness]:
        started: list[FakeVerifier] = []
        for index, arguments in enumerate(verifiers or ({},)):
            defaults: dict[str, Any] = {"token_at": pseudo_random_tokens(3, 511), "replica_id": f"verifier-{index}"}
            started.append(await FakeVerifier(tokenizer, **(defaults | arguments)).__aenter__())
        directory = FakeDirectory([one.record for one in started])
        service = GatewayService(
            config=GatewayConfig(**({"replica_wait_ms": 300} | settings)),
            model_name="tiny",
            tokenizer=tokenizer,
            directory=directory,
            version="1.2.3",
            clock=time.monotonic,
            rng=random.Random(7),
        )
        try:
            yield Harness(service, directory, started)
        finally:
            await service.close()
            for one in started:
                await one.stop()

    return start


def ask(prompt: str = PROMPT, **sampling: Any) -> pb.GenerateRequest:
    """A request with a seed; `sampling` are fields of SamplingParams."""
    values = {"max_tokens": 20, "seed": 5} | sampling
    return pb.GenerateRequest(request_id="request", text=prompt, sampling=common_pb2.SamplingParams(**values))


def tokens_of(responses: list[pb.GenerateResponse], index: int = 0) -> list[int]:
    return [token for one in responses if one.delta.index == index for token in one.delta.token_ids]


def text_of(responses: list[pb.GenerateResponse], index: int = 0) -> str:
    return "".join(one.delta.text for one in responses if one.delta.index == index)


def finished_of(responses: list[pb.GenerateResponse], index: int = 0) -> pb.GenerationFinished:
    """The one `finished` message of an answer, after which nothing came for it."""
    of_answer = [
        one
        for one in responses
        if one.WhichOneof("event") != "started" and getattr(one, str(one.WhichOneof("event"))).index == index
    ]
    assert [one.WhichOneof("event") for one in of_answer].count("finished") == 1
    assert of_answer[-1].WhichOneof("event") == "finished"
    return of_answer[-1].finished
