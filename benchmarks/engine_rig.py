"""An engine without a server, for measurements in one process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

from workers.core.config import KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.core.errors import OutriderError
from workers.core.request import GenerationRequest, StepOutput
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams
from workers.models.loaded import LoadedModel
from workers.proposers.base import Proposer
from workers.proposers.none import NullProposer
from workers.verifier.assembly import build_engine
from workers.verifier.engine import VerifierEngine

__all__ = ["Timed", "engine_for", "request_for", "run_together"]


@dataclass
class Timed:
    """A sink that notes when tokens came."""

    started: float = field(default_factory=time.perf_counter)
    token_ids: list[int] = field(default_factory=list)
    first_at: float = 0.0
    ended_at: float = 0.0
    error: OutriderError | None = None
    done: Event = field(default_factory=Event)

    def push(self, output: StepOutput) -> None:
        if output.token_ids and not self.token_ids:
            self.first_at = time.perf_counter()
        self.token_ids.extend(output.token_ids)
        if output.finish_reason is not None:
            self.ended_at = time.perf_counter()
            self.done.set()

    def fail(self, error: OutriderError) -> None:
        self.error = error
        self.done.set()

    @property
    def decode_tokens_per_s(self) -> float:
        """Rate after the first token."""
        return (len(self.token_ids) - 1) / (self.ended_at - self.first_at)


def engine_for(loaded: LoadedModel, proposer: Proposer | None = None, num_blocks: int = 512) -> VerifierEngine:
    """A started engine."""
    config = VerifierConfig(
        model=ModelConfig(model=loaded.name),
        kv_cache=KvCacheConfig(num_blocks=num_blocks),
        speculation=SpeculationConfig(),
        max_running_requests=16,
    )
    engine = build_engine(config, loaded, proposer or NullProposer())
    engine.start()
    return engine


def request_for(prompt: Sequence[int], tokens: int, seed: int, mode: SpeculationMode) -> GenerationRequest:
    """A greedy request of exactly `tokens` output tokens."""
    return GenerationRequest.build(
        f"bench-{seed}",
        tuple(prompt),
        SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
        seed=seed,
        limits=SpeculationConfig().limits,
        speculation=SpeculationParams(mode=mode),
    )


def run_together(engine: VerifierEngine, requests: Sequence[GenerationRequest]) -> list[Timed]:
    """Submit all at once, wait for all."""
    sinks = [Timed() for _ in requests]
    for request, sink in zip(requests, sinks, strict=True):
        engine.submit(request, sink)
    for sink in sinks:
        sink.done.wait()
        if sink.error is not None:
            raise sink.error
    return sinks
