"""A whole verifier in one object: model, engine, proposer and gRPC server.

By hand:  python -m workers.verifier.server --config verifier.yaml
"""

import asyncio
import time

from outrider.v1 import verifier_pb2_grpc

from workers.core.config import VerifierConfig
from workers.core.readings import Readings
from workers.core.tracing import Tracer
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.parallel.launcher import RankLauncher
from workers.rpc.by_hand import run_by_hand
from workers.rpc.channels import RpcOptions, RunningServer, start_server
from workers.rpc.tracing import tracer_of
from workers.verifier.assembly import build_engine
from workers.verifier.info import VerifierInfo
from workers.verifier.proposer import build_proposer, remote_of
from workers.verifier.readings import read_verifier
from workers.verifier.service import VerifierService

__all__ = ["VerifierServer"]

GRACE_S = 1.0  # given to open streams when the server stops


class VerifierServer:
    """One verifier process. Loading happens in the constructor, serving between `start` and `stop`."""

    def __init__(
        self,
        config: VerifierConfig,
        *,
        verifier_id: str,
        incarnation: int,
        launcher: RankLauncher | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`launcher` starts the other ranks of a tensor-parallel verifier; child processes by default.

        `tracer`: None = as configured.
        """
        self._tracer = tracer or tracer_of(config.rpc, "outrider-verifier")
        self._loaded = loaded = load_model(config.model, launcher)
        try:
            self._build(config, loaded, verifier_id, incarnation)
        except BaseException:
            loaded.close()
            raise

    def _build(self, config: VerifierConfig, loaded: LoadedModel, verifier_id: str, incarnation: int) -> None:
        self._proposer = build_proposer(config, loaded, verifier_id, incarnation)
        self.engine = build_engine(config, loaded, self._proposer, incarnation)
        context_length = min(loaded.context_length, config.kv_cache.num_tokens)
        self._info = VerifierInfo(verifier_id, incarnation, config, loaded, context_length)
        self._service = VerifierService(self.engine, self._info, config.speculation, self._tracer)
        self._options = RpcOptions.of(config.rpc)
        self._server: RunningServer | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the engine and the gRPC server; returns its address "host:port"."""
        self.engine.start()
        self._server = await start_server(
            [lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self._service, server)],
            host=host,
            port=port,
            options=self._options,
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
        await asyncio.to_thread(self._loaded.close)
        await asyncio.to_thread(self._tracer.close)

    def check_health(self) -> None:
        """Raise `UnavailableError` when the engine has failed or is stuck, or a rank of its group has been lost."""
        self.check_ranks()
        self.engine.check_health(self._info.config.stuck_after_s)

    def load_signals(self) -> dict[str, float]:
        """For autoscaling: what is going on, and the last minute; latencies are -1 where there was none."""
        engine = self.engine
        remote = remote_of(self._proposer)
        return {
            "running": float(engine.num_running),
            "waiting": float(engine.num_waiting),
            "seats": float(engine.max_running),
            "kv_usage": engine.kv_usage,
            **engine.load.window(
                proposals=0.0 if remote is None else remote.counters.proposals,
                late=0.0 if remote is None else remote.counters.late,
            ),
        }

    def readings(self) -> Readings:
        """All that it counts, for whoever exports it; one reader, from any thread."""
        return read_verifier(self.engine, remote_of(self._proposer))

    def check_ranks(self) -> None:
        """Raise `UnavailableError` when a rank of its tensor-parallel group has been lost."""
        self._loaded.check_health()

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
            "kv_block_size": self._info.config.kv_cache.block_size,
        }


def main() -> None:
    """Run one verifier by hand."""
    run_by_hand(
        "verifier",
        VerifierConfig,
        lambda config, name, number: VerifierServer(config, verifier_id=name, incarnation=number),
    )


if __name__ == "__main__":
    main()
