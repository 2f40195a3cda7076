"""CountTokens, GetModelInfo, GetServerInfo, and the rpc methods behind Serve."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import grpc
import pytest
from outrider.v1 import common_pb2
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.gateway.grpc_ingress import CallFailedError
from cluster.gateway.service import GatewayService
from cluster.gateway.tenants import Metadata
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.replica_table import key_of
from tests.fakes.fake_verifier import Fault
from tests.unit.gateway.conftest import PROMPT, Ingress, StartHarness, ask
from workers.core.errors import InvalidRequestError
from workers.text.tokenizer import Tokenizer


@dataclass
class _Context:
    code: grpc.StatusCode | None = None
    details: list[str] = field(default_factory=list)

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details.append(details)

    def invocation_metadata(self) -> Metadata:
        return ()


async def test_counts_as_generate_does(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway() as harness:
        counted = await harness.service.count_tokens(pb.CountTokensRequest(text=PROMPT))
        assert list(counted.token_ids) == tokenizer.encode(PROMPT)
        assert counted.prompt_tokens == (await harness.run(ask()))[0].started.prompt_tokens


async def test_a_long_prompt_is_tokenised_beside_the_loop(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway() as harness:
        text = "The river rises in the mountains. " * 1000
        counted = await harness.service.count_tokens(pb.CountTokensRequest(text=text))
        assert list(counted.token_ids) == tokenizer.encode(text)


async def test_model_info(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway() as harness:
        info = await harness.service.get_model_info(pb.GetModelInfoRequest())
        assert (info.model, info.tokenizer_hash, info.vocab_size) == ("tiny", tokenizer.tokenizer_hash, 512)
        assert (info.context_length, info.dtype, info.max_depth, info.max_width, info.max_nodes) == (
            512,
            "float32",
            4,
            3,
            12,
        )
        assert info.default_rule == common_pb2.VERIFICATION_RULE_COUPLED
        assert list(info.allowed_rules) == [1, 2]


async def test_server_info_asks_verifiers_and_survives_their_silence(gateway: StartHarness) -> None:
    async with gateway({}, {}) as harness:
        record = ReplicaRecord("drafter", "d", "127.0.0.1:1", 3, "draft", "f", "t", 16)
        harness.directory.drafter_records = [record]
        harness.service.refresh()
        harness.service._pool._drafters.report(key_of(record), ReplicaLoad(running_requests=2))
        await harness.verifiers[1].stop()
        info = await harness.service.get_server_info(pb.GetServerInfoRequest())
        assert info.version == "1.2.3"
        alive, dead, drafter = info.replicas
        assert (alive.role, alive.replica_id, alive.total_kv_blocks, alive.free_kv_blocks) == (
            "verifier",
            "verifier-0",
            100,
            99,
        )
        assert (dead.replica_id, dead.total_kv_blocks) == ("verifier-1", 0)
        assert (drafter.role, drafter.running_requests, drafter.incarnation) == ("drafter", 2, 3)


async def test_a_verifier_that_leaves_while_it_is_asked_harms_nothing(gateway: StartHarness) -> None:
    """Another request ends meanwhile, and connections to replicas that are gone are closed."""
    async with gateway({}, {"frozen": True}) as harness:
        await harness.service.model()
        asking = asyncio.create_task(harness.service.get_server_info(pb.GetServerInfoRequest()))
        async with asyncio.timeout(60.0):
            while not harness.verifiers[1].asked:
                await asyncio.sleep(0.01)
        harness.directory.verifier_records = harness.directory.verifier_records[:1]
        await harness.service._pool.forget_gone()
        assert [one.replica_id for one in (await asking).replicas] == ["verifier-0", "verifier-1"]


async def test_rpc_methods_answer_and_map_errors(gateway: StartHarness) -> None:
    async with gateway() as harness:
        ingress, context = Ingress(harness.service), _Context()
        responses = [one async for one in ingress.Generate(ask(), context)]
        assert responses[-1].WhichOneof("event") == "finished"
        assert (await ingress.CountTokens(pb.CountTokensRequest(text="a"), context)).prompt_tokens == 1
        assert (await ingress.GetModelInfo(pb.GetModelInfoRequest(), context)).model == "tiny"
        assert (await ingress.GetServerInfo(pb.GetServerInfoRequest(), context)).version == "1.2.3"
        decisions = (await ingress.ExplainRouting(pb.ExplainRoutingRequest(request_id="request"), context)).decisions
        assert [(one.pool, one.candidates[0].replica_id) for one in decisions] == [("verifier", "verifier-0")]
        assert context.code is None
        with pytest.raises(CallFailedError, match="INVALID_ARGUMENT: InvalidRequestError"):
            await ingress.CountTokens(pb.CountTokensRequest(), context)
        assert context.code is grpc.StatusCode.INVALID_ARGUMENT
        assert context.details[-1].startswith("InvalidRequestError: prompt: none is given")
        harness.verifiers[0].faults = [Fault(after_tokens=3, how=InvalidRequestError("bad"))]
        context = _Context()
        stream = ingress.Generate(ask(), context)
        assert (await anext(stream)).HasField("started")
        assert (await anext(stream)).HasField("delta")
        with pytest.raises(CallFailedError):
            await anext(stream)
        assert (context.code, context.details) == (grpc.StatusCode.INVALID_ARGUMENT, ["InvalidRequestError: bad"])


class _BrokenDirectory:
    def verifiers(self) -> list[ReplicaRecord]:
        raise RuntimeError("secret")

    def drafters(self) -> list[ReplicaRecord]:
        raise RuntimeError("secret")


async def test_unexpected_errors_do_not_leak(tokenizer: Tokenizer) -> None:
    service = GatewayService(
        config=GatewayConfig(),
        model_name="tiny",
        tokenizer=tokenizer,
        directory=_BrokenDirectory(),
        version="",
        clock=time.monotonic,
        rng=random.Random(0),
    )
    context = _Context()
    with pytest.raises(CallFailedError):
        await Ingress(service).GetServerInfo(pb.GetServerInfoRequest(), context)
    assert (context.code, context.details) == (grpc.StatusCode.INTERNAL, ["InternalError: internal error"])
