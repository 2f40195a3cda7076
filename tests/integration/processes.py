"""Verifiers and drafters as real processes, and requests to them over real gRPC."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import psutil
import yaml
from outrider.v1 import verifier_pb2, verifier_pb2_grpc

from workers.core.request import DrafterEndpoint, FinishReason, GenerationRequest, StepOutput
from workers.core.statistics import GenerationStats
from workers.rpc.convert import request_to_wire, step_from_wire

__all__ = ["Answer", "Server", "VerifierClient", "drafter_process", "verifier_process"]

START_TIMEOUT_S = 90.0


@dataclass
class Server:
    """A running server process and what it said of itself."""

    process: psutil.Process
    address: str
    info: Mapping[str, Any]

    @property
    def endpoint(self) -> DrafterEndpoint:
        """Of a drafter, as requests name it."""
        return DrafterEndpoint(self.info["id"], self.address, self.info["incarnation"])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, patience_s: float = 15.0) -> int:
        """SIGTERM, then wait for a clean end; the exit status."""
        self.process.terminate()
        return int(self.process.wait(patience_s))


@contextmanager
def _server(
    module: str, config: Mapping[str, Any], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    name = f"{module.rsplit('.', 2)[-2]}-{time.monotonic_ns()}"
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(dict(config)))
    with (folder / f"{name}.log").open("w") as log:
        process = psutil.Popen(
            [sys.executable, "-m", module, "--config", str(path), "--port", str(port), "--log-level", "DEBUG"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait(START_TIMEOUT_S)
        raise AssertionError(f"{module} did not start: {(folder / f'{name}.log').read_text()[-2000:]}")
    info = json.loads(line)
    server = Server(process, info["address"], info)
    try:
        yield server
    finally:
        if process.is_running():
            server.kill()


@contextmanager
def verifier_process(
    model: Path,
    folder: Path,
    *,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    model_settings: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Iterator[Server]:
    """A verifier over `model` (fp32, one thread); `settings` are further fields of VerifierConfig and its model."""
    config = {"model": {"model": str(model), "dtype": "float32", "num_threads": 1, **model_settings}, **settings}
    with _server("workers.verifier.server", config, folder, port, environment) as server:
        yield server


@contextmanager
def drafter_process(
    model: Path, folder: Path, *, port: int = 0, environment: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Server]:
    """A drafter over `model` (fp32, one thread); `settings` are further fields of DrafterConfig."""
    config = {"model": {"model": str(model), "dtype": "float32", "num_threads": 1}, **settings}
    with _server("workers.draft.server", config, folder, port, environment) as server:
        yield server


@dataclass
class Answer:
    """All that one request got."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stats: GenerationStats = field(default_factory=GenerationStats)


class VerifierClient:
    """Talks to a verifier's own service, as a gateway does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address)
        self.stub = verifier_pb2_grpc.VerifierServiceStub(self.channel)

    def stream(self, request: GenerationRequest) -> Iterator[StepOutput]:
        for message in self.stub.Generate(request_to_wire(request), timeout=120):
            yield step_from_wire(request.request_id, message)

    def generate(self, request: GenerationRequest) -> Answer:
        return self.collect(self.stream(request))

    def generate_all(self, requests: Sequence[GenerationRequest]) -> list[Answer]:
        """All at the same time."""
        calls = [self.stub.Generate(request_to_wire(request), timeout=120) for request in requests]
        return [
            self.collect(step_from_wire(r.request_id, m) for m in call) for r, call in zip(requests, calls, strict=True)
        ]

    @staticmethod
    def collect(steps: Iterator[StepOutput]) -> Answer:
        answer = Answer()
        for step in steps:
            answer.token_ids.extend(step.token_ids)
            if step.finish_reason is not None:
                answer.finish_reason = step.finish_reason
            if step.stats is not None:
                answer.stats = step.stats
        return answer

    def info(self) -> verifier_pb2.VerifierGetInfoResponse:
        return self.stub.GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=10)
