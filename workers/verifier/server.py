"""A whole verifier in one object: model, engine, proposer and gRPC server.

By hand:  python -m workers.verifier.server --config verifier.yaml
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import yaml
from outrider.v1 import verifier_pb2_grpc

from workers.core.config import VerifierConfig
from workers.core.errors import ConfigurationError
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.proposers.base import Proposer
from workers.proposers.ngram import NgramProposer
from workers.proposers.none import NullProposer
from workers.proposers.remote import RemoteProposer
from workers.rpc.channels import RunningServer, start_server
from workers.rpc.handshake import VerifierIdentity
from workers.verifier.assembly import build_engine
from workers.verifier.info import VerifierInfo
from workers.verifier.service import VerifierService

__all__ = ["VerifierServer"]

GRACE_S = 1.0  # given to open streams when the server stops


class VerifierServer:
    """One verifier process. Loading happens in the constructor, serving between `start` and `stop`."""

    def __init__(self, config: VerifierConfig, *, verifier_id: str, incarnation: int) -> None:
        loaded = load_model(config.model)
        self._proposer = self._build_proposer(config, loaded, verifier_id, incarnation)
        self.engine = build_engine(config, loaded, self._proposer, incarnation)
        context_length = min(loaded.context_length, config.kv_cache.num_blocks * config.kv_cache.block_size)
        self._info = VerifierInfo(verifier_id, incarnation, config, loaded, context_length)
        self._service = VerifierService(self.engine, self._info, config.speculation)
        self._server: RunningServer | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the engine and the gRPC server; returns its address "host:port"."""
        self.engine.start()
        self._server = await start_server(
            [lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self._service, server)],
            host=host,
            port=port,
            service_names=["outrider.v1.VerifierService"],
        )
        return self._server.address

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for the running ones; True when all have ended in time."""
        self._service.draining = True
        deadline = time.monotonic() + timeout_s
        while not self.engine.is_idle and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return self.engine.is_idle

    async def stop(self) -> None:
        """End everything that still runs and give back all resources."""
        self._service.draining = True
        await asyncio.to_thread(self.engine.stop)
        self.engine.events.close()
        if self._server is not None:
            await self._server.stop(GRACE_S)
        await asyncio.to_thread(self._proposer.shutdown)

    def check_health(self) -> None:
        """Raise `UnavailableError` when the engine has failed."""
        self.engine.check_health()

    def info(self) -> dict[str, object]:
        """Small, JSON-able description for discovery."""
        return {
            "role": "verifier",
            "id": self._info.verifier_id,
            "incarnation": self._info.incarnation,
            "model": self._info.loaded.name,
            "model_fingerprint": self._info.loaded.fingerprint,
            "tokenizer_hash": self._info.loaded.tokenizer_hash,
            "vocab_size": self._info.loaded.vocab_size,
            "context_length": self._info.context_length,
        }

    @staticmethod
    def _build_proposer(config: VerifierConfig, loaded: LoadedModel, verifier_id: str, incarnation: int) -> Proposer:
        if config.method == "none":
            return NullProposer()
        if config.method == "ngram":
            return NgramProposer(config.ngram)
        return RemoteProposer(
            VerifierIdentity(
                verifier_id=verifier_id,
                incarnation=incarnation,
                model=loaded.name,
                model_fingerprint=loaded.fingerprint,
                tokenizer_hash=loaded.tokenizer_hash,
                vocab_size=loaded.vocab_size,
            )
        )


async def _serve(config: VerifierConfig, host: str, port: int) -> None:
    server = VerifierServer(config, verifier_id=f"verifier-{port}", incarnation=time.time_ns())
    address = await server.start(host, port)
    sys.stdout.write(json.dumps({"address": address, **server.info()}) + "\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.drain(timeout_s=10)
    await server.stop()


def main() -> None:
    """Run one verifier by hand; prints its address as one JSON line when it serves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the fields of VerifierConfig")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    try:
        config = VerifierConfig.model_validate(yaml.safe_load(arguments.config.read_text()))
        asyncio.run(_serve(config, arguments.host, arguments.port))
    except (ConfigurationError, ValueError) as error:
        sys.exit(f"{arguments.config}: {error}")


if __name__ == "__main__":
    main()
