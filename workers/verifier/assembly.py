"""Puts an engine together: storage, books, scheduler and pipeline over one loaded model."""

from workers.core.config import VerifierConfig
from workers.kvcache.events import KvEventLog
from workers.models.loaded import LoadedModel
from workers.proposers.base import Proposer
from workers.proposers.target_access import DraftsWithTarget, TargetAccess
from workers.runner.kv_memory import allocate_kv
from workers.runner.model_runner import ModelRunner
from workers.verifier.engine import VerifierEngine
from workers.verifier.limits import EngineLimits
from workers.verifier.scheduler import Scheduler
from workers.verifier.step import VerifyStep

__all__ = ["build_engine"]


def build_engine(
    config: VerifierConfig, loaded: LoadedModel, proposer: Proposer, incarnation: int = 0
) -> VerifierEngine:
    """Wire a loaded model and a proposer into an engine (not started)."""
    storage, kv_cache = allocate_kv(loaded, config.kv_cache)
    target = TargetAccess(ModelRunner(loaded, storage), kv_cache)
    if isinstance(proposer, DraftsWithTarget):
        proposer.attach(target)
    return VerifierEngine(
        step=VerifyStep(target.runner, kv_cache, storage, target.drafts),
        kv_cache=kv_cache,
        scheduler=Scheduler(
            kv_cache, max_running=config.max_running_requests, max_tokens_per_step=config.max_tokens_per_step
        ),
        proposer=proposer,
        limits=EngineLimits(
            vocab_size=loaded.vocab_size,
            context_length=loaded.context_length,
            pool_tokens=config.kv_cache.num_tokens,
            eos_token_ids=loaded.eos_token_ids,
        ),
        tokenizer=loaded.tokenizer,
        events=KvEventLog(incarnation),
        max_waiting=config.max_waiting_requests,
        max_grace_ms=config.speculation.max_grace_ms,
    )
