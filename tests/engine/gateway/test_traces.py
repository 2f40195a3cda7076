"""One trace through gateway, verifier and drafter, over real gRPC between real engines; nothing where it is off."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.v1 import common_pb2
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.gateway.service import GatewayService
from cluster.router.membership import ReplicaRecord, Role
from tests.fakes.fake_verifier import FakeDirectory
from tests.unit.gateway.conftest import ask
from workers.core.config import (
    DrafterConfig,
    KvCacheConfig,
    ModelConfig,
    RpcConfig,
    SpeculationConfig,
    TracingConfig,
    VerifierConfig,
)
from workers.core.errors import InvalidRequestError
from workers.core.tracing import NO_SPAN, NO_TRACER
from workers.draft.server import DraftServer
from workers.rpc.otel import OtelTracer
from workers.rpc.tracing import tracer_of
from workers.text.tokenizer import Tokenizer
from workers.verifier.server import VerifierServer

CLIENTS = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
MARKER = "xylophonequokka"
HOPS = ("gateway.generate", "gateway.attempt", "verifier.generate", "drafter.session")


class Collected:
    """The finished spans of three processes that are one here."""

    def __init__(self) -> None:
        self._exporters: list[InMemorySpanExporter] = []

    def tracer(self, service: str, sample_ratio: float = 1.0) -> OtelTracer:
        self._exporters.append(InMemorySpanExporter())
        return OtelTracer(service, SimpleSpanProcessor(self._exporters[-1]), sample_ratio)

    @property
    def spans(self) -> list[ReadableSpan]:
        return [span for exporter in self._exporters for span in exporter.get_finished_spans()]

    def clear(self) -> None:
        for exporter in self._exporters:
            exporter.clear()


@dataclass
class Plane:
    """One verifier and one drafter that trace whatever they are told to, and what they traced."""

    collected: Collected
    directory: FakeDirectory
    tokenizer: Tokenizer

    @asynccontextmanager
    async def gateway(
        self, *, sample_ratio: float = 1.0, follow_clients: bool = False
    ) -> AsyncIterator[GatewayService]:
        service = GatewayService(
            config=GatewayConfig(replica_wait_ms=2000),
            model_name="tiny",
            tokenizer=self.tokenizer,
            directory=self.directory,
            version="1",
            clock=time.monotonic,
            rng=random.Random(0),
            tracer=self.collected.tracer("gateway", sample_ratio),
            follow_clients=follow_clients,
        )
        self.collected.clear()
        yield service
        await service.close()

    async def finished(self, count: int) -> list[ReadableSpan]:
        """All spans once there are that many: those of engines end a moment after the answer."""
        async with asyncio.timeout(60):
            while len(self.collected.spans) < count:
                await asyncio.sleep(0.01)
        return self.collected.spans


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tiny_target: Path, tiny_draft: Path, tokenizer: Tokenizer) -> AsyncIterator[Plane]:
    def common(folder: Path) -> dict[str, Any]:
        model = ModelConfig(model=str(folder), dtype="float32", num_threads=1)
        return {"model": model, "kv_cache": KvCacheConfig(num_blocks=64)}

    collected = Collected()
    speculation = SpeculationConfig(max_depth=3, max_width=2, max_nodes=6, max_grace_ms=2000.0, profile_ms=0.0)
    drafter = DraftServer(
        DrafterConfig(**common(tiny_draft)), drafter_id="d", incarnation=1, tracer=collected.tracer("drafter")
    )
    verifier = VerifierServer(
        VerifierConfig(**common(tiny_target), speculation=speculation),
        verifier_id="v",
        incarnation=1,
        tracer=collected.tracer("verifier"),
    )

    async def record(role: Role, server: VerifierServer | DraftServer) -> ReplicaRecord:
        hashes = str(server.info()["model_fingerprint"]), tokenizer.tokenizer_hash
        return ReplicaRecord(role, role[0], await server.start(), 1, "tiny", *hashes, 16)

    directory = FakeDirectory([await record("verifier", verifier)], [await record("drafter", drafter)])
    yield Plane(collected, directory, tokenizer)
    await verifier.stop()
    await drafter.stop()


def request() -> pb.GenerateRequest:
    message = ask(f"{MARKER} rises", max_tokens=16, ignore_eos=True)
    message.speculation.mode = common_pb2.SPECULATION_MODE_ON
    return message


async def run(service: GatewayService, *headers: tuple[str, str]) -> pb.GenerateResponse:
    """The last message."""
    return [one async for one in service.generate(request(), headers)][-1]


@pytest.mark.asyncio(loop_scope="module")
async def test_one_trace_through_all_three(plane: Plane) -> None:
    async with plane.gateway() as service:
        for _ in range(20):  # the first request may find the stream to the drafter not up yet
            await plane.finished(len(plane.collected.spans))
            plane.collected.clear()
            last = await run(service, ("traceparent", CLIENTS))
            if last.finished.stats.drafted_tokens:
                break
        trace = await plane.finished(len(HOPS))
    by_name = {one.name: one for one in trace}
    assert sorted(one.name for one in trace) == sorted(HOPS)
    assert len({one.context.trace_id for one in trace}) == 1
    assert f"{trace[0].context.trace_id:032x}" != CLIENTS[3:35], "clients are not followed unless they are trusted"
    assert by_name[HOPS[0]].parent is None
    for above, below in pairwise(HOPS):
        parent = by_name[below].parent
        assert parent is not None
        assert parent.span_id == by_name[above].context.span_id
    services = [by_name[name].resource.attributes["service.name"] for name in HOPS]
    assert services == ["gateway", "gateway", "verifier", "drafter"]
    attributes = {one.name: dict(one.attributes or {}) for one in trace}
    assert attributes["gateway.generate"]["outrider.request_id"] == "request"
    assert attributes["gateway.generate"]["outrider.outcome"] == "ok"
    assert attributes["verifier.generate"]["outrider.drafted_tokens"] == last.finished.stats.drafted_tokens > 0
    assert attributes["verifier.generate"]["outrider.verifier"] == "v"
    assert attributes["drafter.session"]["outrider.proposals"] > 0  # type: ignore[operator]
    assert MARKER not in str([one.to_json() for one in trace])


@pytest.mark.asyncio(loop_scope="module")
async def test_what_clients_may_decide(plane: Plane) -> None:
    """With a ratio of 0 only traces that a trusted client wants are recorded, and what is no traceparent is none."""
    async with plane.gateway(sample_ratio=0.0, follow_clients=True) as service:
        await run(service)
        await run(service, ("traceparent", "rubbish" * 1000))
        assert (await run(service, ("traceparent", CLIENTS))).finished.stats.output_tokens == 16
        wrong = request()
        wrong.sampling.temperature = -1.0
        with pytest.raises(InvalidRequestError):
            await anext(service.generate(wrong, (("traceparent", CLIENTS),)))
        spans = await plane.finished(len(HOPS) + 1)
    assert sorted(one.name for one in spans) == sorted([*HOPS, "gateway.generate"])
    assert {f"{one.context.trace_id:032x}" for one in spans} == {CLIENTS[3:35]}
    (failed,) = [one for one in spans if not one.status.is_unset]
    assert failed.status.description == "InvalidRequestError", "the class, and not its text"


def test_off_there_is_one_span_that_does_nothing() -> None:
    assert NO_TRACER.start("anything", CLIENTS, number=1) is NO_SPAN
    assert tracer_of(RpcConfig(), "test") is NO_TRACER
    assert NO_SPAN.traceparent == ""


def test_opentelemetry_is_loaded_where_it_is_wanted_only() -> None:
    code = (
        "import sys, workers.core.tracing, workers.rpc.tracing, workers.rpc.channels;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_setting_builds_an_exporting_tracer() -> None:
    """Towards a collector that is not there: nothing waits for it, and nothing fails."""
    tracing = TracingConfig(endpoint="127.0.0.1:9", sample_ratio=1.0)
    tracer = tracer_of(RpcConfig(tracing=tracing), "test")
    assert tracer.enabled
    started = time.monotonic()
    span = tracer.start("something", "")
    span.end()
    span.end()
    tracer.close()
    assert time.monotonic() - started < 60
    assert span.traceparent.startswith("00-")


@pytest.mark.parametrize("endpoint", ["", "collector", "http://collector:4317", "collector:port"])
def test_an_endpoint_is_host_and_port(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        TracingConfig(endpoint=endpoint)
