"""The real gateway in a process of its own, without Serve: the same service behind a plain gRPC server.

python -m tests.integration.faults.gateway_server --config gateway.yaml --port 0

`config` names the tokenizer, the gateway's settings and a file with the records of all replicas, which is read again
whenever it changes.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import yaml
from outrider.v1 import generation_pb2 as pb
from outrider.v1 import generation_pb2_grpc

from cluster.config.gateway import GatewayConfig
from cluster.gateway.heartbeat import with_heartbeats
from cluster.gateway.service import GatewayService
from cluster.router.membership import ReplicaRecord
from workers.rpc.channels import start_server
from workers.text.tokenizer import Tokenizer

Context = grpc.aio.ServicerContext[Any, Any]


class FileDirectory:
    """A `ReplicaDirectory` from a JSON file with a list of records."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = 0
        self._records: list[ReplicaRecord] = []

    def verifiers(self) -> Sequence[ReplicaRecord]:
        return self._of("verifier")

    def drafters(self) -> Sequence[ReplicaRecord]:
        return self._of("drafter")

    def _of(self, role: str) -> list[ReplicaRecord]:
        changed_at = self._path.stat().st_mtime_ns
        if changed_at != self._read_at:
            self._records = [ReplicaRecord(**one) for one in json.loads(self._path.read_text())]
            self._read_at = changed_at
        return [one for one in self._records if one.role == role]


class Servicer(generation_pb2_grpc.GenerationServiceServicer):
    def __init__(self, service: GatewayService) -> None:
        self._service = service

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        lively = with_heartbeats(self._service.generate(request), self._service.heartbeat_s)
        async with aclosing(lively) as responses:
            async for response in responses:
                yield response

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        return await self._service.get_server_info(request)


async def serve(config: dict[str, Any], port: int) -> None:
    service = GatewayService(
        config=GatewayConfig(**config["gateway"]),
        model_name="tiny",
        tokenizer=Tokenizer.load(config["tokenizer"]),
        directory=FileDirectory(Path(config["replicas"])),
        version="test",
        clock=time.monotonic,
        rng=random.SystemRandom(),
    )
    servicer = Servicer(service)
    server = await start_server(
        [lambda it: generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, it)], port=port
    )
    print(json.dumps({"address": server.address, "role": "gateway"}), flush=True)  # noqa: T201
    await server.server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(serve(yaml.safe_load(arguments.config.read_text()), arguments.port))


if __name__ == "__main__":
    main()
