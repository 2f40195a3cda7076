"""Puts an engine together: storage, books, scheduler and pipeline over one loaded model."""

import time
from collections.abc import Callable

from workers.core.config import SpeculationConfig, VerifierConfig
from workers.core.threads import run_apart
from workers.kvcache.events import KvEventLog
from workers.models.loaded import LoadedModel
from workers.proposers.base import Proposer
from workers.proposers.target_access import DraftsWithTarget, TargetAccess
from workers.runner.kv_memory import allocate_kv
from workers.runner.model_runner import ModelRunner
from workers.scheduling.controller import BudgetController
from workers.scheduling.modes import ModeSettings
from workers.scheduling.step_cost import CostSample
from workers.verifier.budget_trace import BudgetTrace
from workers.verifier.engine import VerifierEngine
from workers.verifier.limits import EngineLimits
from workers.verifier.scheduler import Scheduler
from workers.verifier.speculation import Speculation
from workers.verifier.step import VerifyStep
from workers.verifier.step_profile import profile_steps

__all__ = ["build_engine"]

Clock = Callable[[], float]


def build_engine(
    config: VerifierConfig,
    loaded: LoadedModel,
    proposer: Proposer,
    incarnation: int = 0,
    clock: Clock = time.monotonic,
) -> VerifierEngine:
    """Measure what steps cost, and wire a loaded model and a proposer into an engine (not started)."""
    storage, kv_cache = allocate_kv(loaded, config.kv_cache)
    runner = ModelRunner(loaded, storage)
    target = TargetAccess(runner, kv_cache)

    def prepare() -> list[CostSample]:
        if isinstance(proposer, DraftsWithTarget):
            proposer.attach(target)
        return profile_steps(
            runner,
            num_slots=config.kv_cache.num_tokens,
            context_length=loaded.context_length,
            max_rows=config.max_tokens_per_step,
            limit_ms=0.0 if config.method == "none" else config.speculation.profile_ms,
        )

    profile = run_apart(prepare)
    return VerifierEngine(
        step=VerifyStep(runner, kv_cache, storage, target.drafts),
        kv_cache=kv_cache,
        scheduler=Scheduler(
            kv_cache, max_running=config.max_running_requests, max_tokens_per_step=config.max_tokens_per_step
        ),
        speculation=_speculation(config, proposer, profile, clock),
        limits=EngineLimits(
            vocab_size=loaded.vocab_size,
            context_length=loaded.context_length,
            pool_tokens=config.kv_cache.num_tokens,
            eos_token_ids=loaded.eos_token_ids,
        ),
        tokenizer=loaded.tokenizer,
        events=KvEventLog(incarnation),
        max_waiting=config.max_waiting_requests,
        give_up_hopeless=config.give_up_hopeless,
        clock=clock,
    )


def _speculation(config: VerifierConfig, proposer: Proposer, profile: list[CostSample], clock: Clock) -> Speculation:
    settings = config.speculation
    return Speculation(
        proposer,
        BudgetController(_modes(settings), profile),
        max_grace_ms=settings.max_grace_ms,
        max_tokens_per_step=config.max_tokens_per_step,
        clock=clock,
        trace=None if settings.trace_path is None else BudgetTrace(settings.trace_path, clock),
    )


def _modes(settings: SpeculationConfig) -> ModeSettings:
    return ModeSettings(
        patience=settings.patience_steps,
        resume_margin=settings.resume_margin,
        probe_every=settings.probe_every_steps,
        control_every=settings.control_every_steps,
    )
