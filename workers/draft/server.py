"""A whole drafter in one object: model, engine and gRPC server.

By hand:  python -m workers.draft.server --config drafter.yaml
"""

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path

import yaml
from outrider.v1 import draft_pb2_grpc

from workers.core.block_hash import BlockHasher
from workers.core.config import DrafterConfig
from workers.core.errors import OutriderError, UnavailableError
from workers.draft.engine import DraftEngine
from workers.draft.outbox import StreamHub
from workers.draft.service import DraftService
from workers.draft.sessions import DraftModelInfo
from workers.kvcache.events import KvEventLog
from workers.kvcache.manager import KvCacheManager
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.rpc.channels import RunningServer, start_server
from workers.rpc.handshake import DrafterIdentity
from workers.runner.model_runner import ModelRunner

__all__ = ["DraftServer"]

GRACE_S = 1.0  # given to open streams when the server stops
DRAIN_POLL_S = 0.05


class DraftServer:
    """One drafter process. Loading happens in the constructor, serving between `start` and `stop`."""

    def __init__(self, config: DrafterConfig, *, drafter_id: str, incarnation: int) -> None:
        loaded = load_model(config.model)
        pool_tokens = config.kv_cache.num_blocks * config.kv_cache.block_size
        self.identity = DrafterIdentity(
            drafter_id=drafter_id,
            incarnation=incarnation,
            model=loaded.name,
            model_fingerprint=loaded.fingerprint,
            tokenizer_hash=loaded.tokenizer_hash,
            vocab_size=loaded.vocab_size,
            max_sessions=config.max_sessions,
            context_length=min(loaded.context_length, pool_tokens),
        )
        self._hub = StreamHub()
        self._events = KvEventLog(incarnation)
        self.engine = self._build_engine(config, loaded)
        self._service = DraftService(self.engine, self._hub, self.identity, self._events)
        self._server: RunningServer | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the engine and the gRPC server; returns its address "host:port"."""
        self.engine.start()
        self._server = await start_server(
            [lambda server: draft_pb2_grpc.add_DraftServiceServicer_to_server(self._service, server)],
            host=host,
            port=port,
            service_names=["outrider.v1.DraftService"],
        )
        return self._server.address

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new sessions and wait for the open ones; True when all have ended in time."""
        self._service.draining = True
        self.engine.refuse_new_sessions()
        deadline = time.monotonic() + timeout_s
        while self.engine.num_sessions and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_POLL_S)
        return self.engine.num_sessions == 0

    async def stop(self) -> None:
        """End all streams and give back everything."""
        self._service.draining = True
        self._hub.fail(UnavailableError("this drafter has shut down; try another"))
        self._events.close()
        if self._server is not None:
            await self._server.stop(GRACE_S)
        await asyncio.to_thread(self.engine.stop)

    def check_health(self) -> None:
        """Raise `UnavailableError` when the engine has failed or is stuck."""
        self.engine.check_health()

    def info(self) -> dict[str, object]:
        """Small, JSON-able description for discovery."""
        identity = dataclasses.asdict(self.identity)
        return {"role": "drafter", "id": identity.pop("drafter_id"), **identity}

    def _build_engine(self, config: DrafterConfig, loaded: LoadedModel) -> DraftEngine:
        cache = config.kv_cache
        storage = KvStorage(
            num_layers=loaded.num_layers,
            num_slots=cache.num_blocks * cache.block_size,
            num_kv_heads=loaded.num_kv_heads,
            head_dim=loaded.head_dim,
            dtype=loaded.kv_dtype,
            device=loaded.device,
        )
        manager = KvCacheManager(
            num_blocks=cache.num_blocks,
            block_size=cache.block_size,
            hasher=BlockHasher(loaded.fingerprint, cache.block_size),
            prefix_caching=cache.prefix_caching,
        )
        return DraftEngine(
            ModelRunner(loaded, storage),
            storage,
            manager,
            DraftModelInfo(loaded.vocab_size, self.identity.context_length, loaded.eos_token_ids, loaded.device),
            max_sessions=config.max_sessions,
            max_tokens_per_step=config.max_tokens_per_step,
            grow_ahead=config.grow_ahead,
            sink=self._hub.deliver,
            events=self._events,
            on_failure=lambda: self._hub.fail(UnavailableError("the draft engine failed; try another drafter")),
        )


async def _serve(config: DrafterConfig, host: str, port: int) -> None:
    incarnation = time.time_ns()
    server = DraftServer(config, drafter_id=f"drafter-{incarnation:x}", incarnation=incarnation)
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
    """Run one drafter by hand; prints its address as one JSON line when it serves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the fields of DrafterConfig")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    try:
        config = DrafterConfig.model_validate(yaml.safe_load(arguments.config.read_text()))
        asyncio.run(_serve(config, arguments.host, arguments.port))
    except (OutriderError, OSError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{arguments.config}: {error}")


if __name__ == "__main__":
    main()
