"""A whole drafter in one object: model, engine and gRPC server.

By hand:  python -m workers.draft.server --config drafter.yaml
"""

import asyncio
import dataclasses
import time

from outrider.v1 import draft_pb2_grpc

from workers.core.config import DrafterConfig
from workers.core.errors import UnavailableError
from workers.core.readings import Readings
from workers.core.sliding import SlidingDeltas
from workers.core.tracing import Tracer
from workers.draft.engine import DraftEngine
from workers.draft.outbox import StreamHub
from workers.draft.readings import read_drafter
from workers.draft.service import DraftService
from workers.draft.sessions import DraftModelInfo
from workers.kvcache.events import KvEventLog
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.parallel.launcher import RankLauncher
from workers.rpc.by_hand import run_by_hand
from workers.rpc.channels import RpcOptions, RunningServer, start_server
from workers.rpc.handshake import DrafterIdentity
from workers.rpc.tracing import tracer_of
from workers.runner.kv_memory import allocate_kv
from workers.runner.model_runner import ModelRunner

__all__ = ["DraftServer"]

GRACE_S = 1.0  # given to open streams when the server stops
DRAIN_POLL_S = 0.05
WINDOW_S = 60.0  # of what is reported for autoscaling


class DraftServer:
    """One drafter process. Loading happens in the constructor, serving between `start` and `stop`."""

    def __init__(
        self,
        config: DrafterConfig,
        *,
        drafter_id: str,
        incarnation: int,
        launcher: RankLauncher | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`launcher` starts the other ranks of a tensor-parallel drafter; child processes by default.

        `tracer`: None = as configured.
        """
        self._tracer = tracer or tracer_of(config.rpc, "outrider-drafter")
        self._loaded = loaded = load_model(config.model, launcher)
        try:
            self._build(config, loaded, drafter_id, incarnation)
        except BaseException:
            loaded.close()
            raise

    def _build(self, config: DrafterConfig, loaded: LoadedModel, drafter_id: str, incarnation: int) -> None:
        self.identity = DrafterIdentity(
            drafter_id=drafter_id,
            incarnation=incarnation,
            model=loaded.name,
            model_fingerprint=loaded.fingerprint,
            tokenizer_hash=loaded.tokenizer_hash,
            vocab_size=loaded.vocab_size,
            max_sessions=config.max_sessions,
            context_length=min(loaded.context_length, config.kv_cache.num_tokens),
        )
        self._hub = StreamHub()
        self._events = KvEventLog(incarnation)
        self.engine = self._build_engine(config, loaded)
        self._service = DraftService(self.engine, self._hub, self.identity, self._events)
        self._options = RpcOptions.of(config.rpc)
        self._server: RunningServer | None = None
        self._deltas = SlidingDeltas(WINDOW_S, time.monotonic)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the engine and the gRPC server; returns its address "host:port"."""
        self.engine.start()
        self._server = await start_server(
            [lambda server: draft_pb2_grpc.add_DraftServiceServicer_to_server(self._service, server)],
            host=host,
            port=port,
            options=self._options,
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
        await asyncio.to_thread(self._loaded.close)
        await asyncio.to_thread(self._tracer.close)

    def check_health(self) -> None:
        """Raise `UnavailableError` when the engine has failed or is stuck, or a rank of its group has been lost."""
        self.check_ranks()
        self.engine.check_health()

    def load_signals(self) -> dict[str, float]:
        """For autoscaling: sessions, and what happened in the last minute."""
        counters = self.engine.counters
        grown, seconds = self._deltas.update(
            {
                "busy": counters.busy_s,
                "proposed_nodes": counters.proposed_nodes,
                "hits": counters.hits,
                "misses": counters.misses,
            }
        )
        busy_s = grown.pop("busy")
        return {
            "sessions": float(self.engine.num_sessions),
            "max_sessions": float(self.engine.max_sessions),
            "busy": min(1.0, busy_s / seconds) if seconds > 0 else 0.0,
            **{name: float(value) for name, value in grown.items()},
        }

    def readings(self) -> Readings:
        """All that it counts, for whoever exports it; one reader, from any thread."""
        return read_drafter(self.engine)

    def check_ranks(self) -> None:
        """Raise `UnavailableError` when a rank of its tensor-parallel group has been lost."""
        self._loaded.check_health()

    def info(self) -> dict[str, object]:
        """Small, JSON-able description for discovery."""
        identity = dataclasses.asdict(self.identity)
        block_size = self.engine.manager.block_size
        return {"role": "drafter", "id": identity.pop("drafter_id"), "kv_block_size": block_size, **identity}

    def _build_engine(self, config: DrafterConfig, loaded: LoadedModel) -> DraftEngine:
        storage, manager = allocate_kv(loaded, config.kv_cache)
        return DraftEngine(
            ModelRunner(loaded, storage, reduced=True),
            storage,
            manager,
            DraftModelInfo(
                vocab_size=loaded.vocab_size,
                context_length=self.identity.context_length,
                eos_token_ids=loaded.eos_token_ids,
                device=loaded.device,
                token_map=loaded.token_map,
            ),
            max_sessions=config.max_sessions,
            max_tokens_per_step=config.max_tokens_per_step,
            grow_ahead=config.grow_ahead,
            sink=self._hub.deliver,
            events=self._events,
            tracer=self._tracer,
            on_failure=lambda: self._hub.fail(UnavailableError("the draft engine failed; try another drafter")),
        )


def main() -> None:
    """Run one drafter by hand."""
    run_by_hand(
        "drafter", DrafterConfig, lambda config, name, number: DraftServer(config, drafter_id=name, incarnation=number)
    )


if __name__ == "__main__":
    main()
