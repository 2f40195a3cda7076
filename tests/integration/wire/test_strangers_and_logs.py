"""Real processes with an internal token: strangers get nothing, and logs at DEBUG hold nothing of what was asked."""

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.gateway.grpc_ingress import CallFailedError
from cluster.gateway.service import GatewayService
from cluster.router.membership import ReplicaRecord, Role
from tests.fakes.fake_verifier import FakeDirectory
from tests.integration.processes import Server, drafter_process, verifier_process
from tests.unit.gateway.conftest import Ingress
from workers.core.private_log import CONTENT_VARIABLE, log_failure
from workers.rpc.channels import RpcOptions
from workers.rpc.internal_plane import TOKEN_VARIABLE
from workers.text.tokenizer import Tokenizer

MARKER = "xylophonequokka"
TOKEN = "the-internal-token-of-this-test"  # noqa: S105
BLOCK_SIZE = 4
CACHE = {"num_blocks": 256, "block_size": BLOCK_SIZE}


@dataclass
class Plane:
    verifier: Server
    drafter: Server
    folder: Path
    tokenizer: Tokenizer

    def record(self, server: Server, role: Role) -> ReplicaRecord:
        info = server.info
        hashes = (info["model_fingerprint"], info["tokenizer_hash"])
        return ReplicaRecord(role, info["id"], server.address, info["incarnation"], "tiny", *hashes, BLOCK_SIZE)

    def gateway(self, token: str | None = TOKEN) -> GatewayService:
        directory = FakeDirectory([self.record(self.verifier, "verifier")], [self.record(self.drafter, "drafter")])
        return GatewayService(
            config=GatewayConfig(max_output_tokens=64),
            model_name="tiny",
            tokenizer=self.tokenizer,
            directory=directory,
            version="1",
            clock=time.monotonic,
            rng=random.Random(0),
            options=RpcOptions(token=token),
        )

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.folder.glob("*.log"))


@pytest.fixture(scope="module")
def plane(tiny_target: Path, tiny_draft: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("plane")
    environment = {TOKEN_VARIABLE: TOKEN}
    speculation = {"max_depth": 4, "max_width": 3, "max_nodes": 12, "max_grace_ms": 1000.0, "profile_ms": 0.0}
    with (
        verifier_process(
            tiny_target, folder, environment=environment, kv_cache=CACHE, speculation=speculation
        ) as verifier,
        drafter_process(tiny_draft, folder, environment=environment, kv_cache=CACHE) as drafter,
    ):
        yield Plane(verifier, drafter, folder, Tokenizer.load(str(tiny_target)))


@dataclass
class Context:
    """As Serve's."""

    details: list[str] = field(default_factory=list)

    def set_code(self, code: grpc.StatusCode) -> None: ...

    def set_details(self, details: str) -> None:
        self.details.append(details)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


def request(prompt: str = f"{MARKER} {MARKER}", **fields: object) -> pb.GenerateRequest:
    sampling = common_pb2.SamplingParams(max_tokens=24, seed=3, ignore_eos=True, stop=[f"never {MARKER}"])
    return pb.GenerateRequest(request_id="r", text=prompt, sampling=sampling, **fields)  # type: ignore[arg-type]


async def test_a_request_runs_through_all_three(plane: Plane) -> None:
    """And the drafts come: the verifier has shown the drafter the token too."""
    service = plane.gateway()
    message = request()
    message.speculation.mode = common_pb2.SPECULATION_MODE_ON
    async with asyncio.timeout(120):
        for _ in range(20):
            responses = [one async for one in service.generate(message)]
            if responses[-1].finished.stats.drafted_tokens:
                break
    await service.close()
    assert responses[-1].finished.stats.output_tokens == 24
    assert responses[-1].finished.stats.drafted_tokens > 0


async def test_strangers_reach_no_service(plane: Plane) -> None:
    for options in (RpcOptions(token=None), RpcOptions(token=TOKEN + "x")):
        service = plane.gateway(options.token)
        with pytest.raises(Exception, match="does not answer: UNAUTHENTICATED"):
            await anext(service.generate(request()))
        await service.close()
    async with grpc.aio.insecure_channel(plane.drafter.address) as channel:
        call = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        await call.write(draft_pb2.VerifierFrame(hello=draft_pb2.Hello(verifier_id="stranger")))
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        events = draft_pb2_grpc.DraftServiceStub(channel).KvEvents(verifier_pb2.KvEventsRequest())
        assert await events.code() is grpc.StatusCode.UNAUTHENTICATED
    async with grpc.aio.insecure_channel(plane.verifier.address) as channel:
        stub = verifier_pb2_grpc.VerifierServiceStub(channel)
        assert await stub.KvEvents(verifier_pb2.KvEventsRequest()).code() is grpc.StatusCode.UNAUTHENTICATED


class Broken:
    """A directory whose failure repeats what was asked."""

    def verifiers(self) -> list[ReplicaRecord]:
        raise KeyError(MARKER)

    drafters = verifiers


async def test_logs_hold_no_content(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """Good requests, refused ones and ones that fail in an unforeseen way."""
    caplog.set_level(logging.DEBUG)
    service = plane.gateway()
    chat = pb.ChatMessages(messages=[pb.ChatMessage(role=MARKER, content=MARKER)])
    wrong = [
        pb.GenerateRequest(chat=chat),
        request(model=MARKER),
        request(cache_salt=MARKER * 30),
        pb.GenerateRequest(text=MARKER, sampling=common_pb2.SamplingParams(stop=[MARKER * 100])),
    ]
    raised: list[str] = []
    async with asyncio.timeout(120):
        assert [one async for one in Ingress(service).Generate(request(), Context())]
        for message in wrong:
            context = Context()
            with pytest.raises(CallFailedError) as caught:
                await anext(Ingress(service).Generate(message, context))
            raised.append(str(caught.value))
            assert context.details, "the client is told all the same"
        service._directory = Broken()  # type: ignore[assignment]
        with pytest.raises(CallFailedError) as caught:
            await Ingress(service).GetServerInfo(pb.GetServerInfoRequest(), Context())
    await service.close()
    plane.drafter.kill()  # something that is logged for certain
    deadline = time.monotonic() + 60
    while "draft stream to" not in plane.logs() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    texts = plane.logs() + caplog.text + "".join(raised) + str(caught.value)
    assert "is down" in plane.logs(), "the processes do log"
    assert "KeyError" in caplog.text, "so does the gateway"
    ids = plane.tokenizer.encode(MARKER)
    assert len(ids) > 3
    for secret in (MARKER, ", ".join(map(str, ids[:4])), TOKEN):
        assert secret not in texts


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False), ("yes", False)])
def test_unless_the_operator_asks_for_it(caplog: pytest.LogCaptureFixture, value: str, shown: bool) -> None:
    log_failure(logging.getLogger("test"), "it failed", KeyError(MARKER), {CONTENT_VARIABLE: value})
    assert (MARKER in caplog.text) is shown
