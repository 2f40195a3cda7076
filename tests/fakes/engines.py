"""Engines over the tiny model, and how tests run requests through them."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workers.core.config import KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.core.errors import OutriderError
from workers.core.proposal import TreeBudget
from workers.core.request import FinishReason, GenerationRequest, StepOutput, TenantShare, TokenLogprob
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule
from workers.core.statistics import GenerationStats
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.proposers.base import Proposer
from workers.proposers.none import NullProposer
from workers.verifier.assembly import build_engine
from workers.verifier.engine import VerifierEngine

__all__ = ["LIMITS", "Collected", "Collector", "make_engine", "make_request", "run_all", "tiny_loaded"]

LIMITS = TreeBudget(max_depth=5, max_width=4, max_nodes=12)


@dataclass
class Collected:
    """All that one request got."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_string: str = ""
    stats: GenerationStats | None = None
    error: OutriderError | None = None


class Collector:
    """An `OutputSink` that waits for the end."""

    def __init__(self) -> None:
        self.result = Collected()
        self.first = threading.Event()
        self._done = threading.Event()

    def push(self, output: StepOutput) -> None:
        assert not self._done.is_set(), "output after the last message"
        self.result.token_ids.extend(output.token_ids)
        self.result.logprobs.extend(output.logprobs)
        if output.token_ids:
            self.first.set()
        if output.finish_reason is not None:
            self.result.finish_reason = output.finish_reason
            self.result.stop_string = output.stop_string
            self.result.stats = output.stats
            self._done.set()

    def fail(self, error: OutriderError) -> None:
        self.result.error = error
        self._done.set()

    def wait(self, timeout_s: float = 60.0) -> Collected:
        assert self._done.wait(timeout_s), "the request did not end in time"
        return self.result


def tiny_loaded(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_model(ModelConfig.model_validate({"model": str(folder), "dtype": dtype, "num_threads": 1}))


def make_engine(
    loaded: LoadedModel,
    proposer: Proposer | None = None,
    *,
    num_blocks: int = 256,
    block_size: int = 4,
    max_running_requests: int = 8,
    max_waiting_requests: int = 64,
    max_tokens_per_step: int = 64,
    speculation: SpeculationConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
    started: bool = True,
    give_up_hopeless: bool = True,
) -> VerifierEngine:
    """An engine; the caller stops it, or calls `run_step` itself when it is not `started`."""
    config = VerifierConfig(
        model=ModelConfig(model=loaded.name),
        kv_cache=KvCacheConfig(num_blocks=num_blocks, block_size=block_size),
        speculation=speculation or SpeculationConfig(profile_ms=0.0),
        max_running_requests=max_running_requests,
        max_waiting_requests=max_waiting_requests,
        max_tokens_per_step=max_tokens_per_step,
        give_up_hopeless=give_up_hopeless,
    )
    engine = build_engine(config, loaded, proposer or NullProposer(), clock=clock)
    if started:
        engine.start()
    return engine


def make_request(
    prompt: Sequence[int],
    sampling: SamplingParams | None = None,
    *,
    seed: int = 0,
    rule: VerificationRule = VerificationRule.COUPLED,
    mode: SpeculationMode = SpeculationMode.ON,
    output_token_ids: Sequence[int] = (),
    cache_salt: str = "",
    deadline_ms: int | None = None,
    limits: TreeBudget = LIMITS,
    priority: int = 0,
    tenant: str = "",
    weight: float = 1.0,
) -> GenerationRequest:
    return GenerationRequest.build(
        f"request-{seed}",
        tuple(prompt),
        sampling or SamplingParams(temperature=0.0, max_tokens=24),
        seed=seed,
        limits=limits,
        speculation=SpeculationParams(mode=mode, rule=rule),
        output_token_ids=tuple(output_token_ids),
        cache_salt=cache_salt,
        deadline_ms=deadline_ms,
        priority=priority,
        tenant=TenantShare(tenant, weight),
    )


def run_all(engine: VerifierEngine, requests: Sequence[GenerationRequest]) -> list[Collected]:
    """Submit all at once and wait for all; errors are raised."""
    collectors = [Collector() for _ in requests]
    for request, collector in zip(requests, collectors, strict=True):
        engine.submit(request, collector)
    results = [collector.wait() for collector in collectors]
    for result in results:
        if result.error is not None:
            raise result.error
    return results
