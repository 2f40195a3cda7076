"""An engine without a server, for measurements in one process."""

from collections.abc import Sequence

from workers.core.config import KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams
from workers.models.loaded import LoadedModel
from workers.proposers.base import Proposer
from workers.proposers.none import NullProposer
from workers.verifier.assembly import build_engine
from workers.verifier.engine import VerifierEngine

__all__ = ["engine_for", "request_for"]


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
