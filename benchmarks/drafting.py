"""Where the time of a drafting goes: from a verifier's commit to the proposal, without the wire.

The tree of every session is lost each time (the worst case), so all its levels are drafted anew.
"""

import random
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from workers.attention.forward_context import SequenceChunk
from workers.core.config import KvCacheConfig
from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.proposal import TreeBudget
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.draft.engine import DraftEngine
from workers.draft.messages import FrameIn, FrameOut
from workers.draft.sessions import DraftModelInfo
from workers.models.loaded import LoadedModel
from workers.runner.kv_memory import allocate_kv
from workers.runner.model_runner import ChunkOutput, ModelRunner

__all__ = ["measure_drafting"]

BUDGET = TreeBudget(max_depth=2, max_width=2, max_nodes=4)
CONTEXT = 120  # tokens
ROUNDS, WARM_UP = 60, 10


class _TimedRunner:
    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.ms = 0.0

    def forward(self, chunks: Sequence[SequenceChunk]) -> Sequence[ChunkOutput]:
        started = time.perf_counter()
        outputs = self._runner.forward(chunks)
        self.ms += 1000 * (time.perf_counter() - started)
        return outputs


def measure_drafting(loaded: LoadedModel) -> dict[str, Any]:
    """Milliseconds per drafting of all sessions together: in the draft model, and in all else."""
    runs = [_measure(loaded, sessions, temperature) for sessions in (1, 8) for temperature in (0.0, 0.8)]
    return {
        "tree": {"depth": BUDGET.max_depth, "width": BUDGET.max_width, "nodes": BUDGET.max_nodes},
        "context": CONTEXT,
        "draftings": runs,
    }


def _measure(loaded: LoadedModel, sessions: int, temperature: float) -> dict[str, float]:
    storage, manager = allocate_kv(loaded, KvCacheConfig(num_blocks=64 * sessions))
    runner = _TimedRunner(ModelRunner(loaded, storage, reduced=True))
    sent: list[FrameOut] = []
    engine = DraftEngine(
        runner,
        storage,
        manager,
        DraftModelInfo(loaded.vocab_size, 1024, loaded.eos_token_ids, loaded.device, loaded.token_map),
        max_sessions=sessions,
        max_tokens_per_step=1024,
        grow_ahead=0,
        sink=lambda _, frame: sent.append(frame),
    )
    rng = random.Random(0)
    tokens = tuple(rng.randrange(loaded.vocab_size) for _ in range(CONTEXT))
    rule, sampling = VerificationRule.COUPLED, SamplingParams(temperature=temperature)
    openings = [SessionOpening(i, 1, tokens, CONTEXT, sampling, i, rule, BUDGET) for i in range(sessions)]
    engine.handle(FrameIn(0, loaded.vocab_size, opens=tuple(openings)))
    totals, models = [], []
    for number in range(ROUNDS):
        while engine.step() or engine.prepare():  # ends what is left to do, in the verifier's time
            pass
        sent.clear()
        runner.ms, started = 0.0, time.perf_counter()
        foreign = rng.randrange(loaded.vocab_size)
        commits = [SessionCommit(i, 1, CONTEXT + number, (foreign,), BUDGET) for i in range(sessions)]
        engine.handle(FrameIn(0, loaded.vocab_size, commits=tuple(commits)))
        while sum(len(frame.proposals) for frame in sent) < sessions:
            engine.step()
        totals.append(1000 * (time.perf_counter() - started))
        models.append(runner.ms)
    total, model = median(totals[WARM_UP:]), median(models[WARM_UP:])
    return {
        "sessions": sessions,
        "temperature": temperature,
        "forwards": BUDGET.max_depth,
        "ms": round(total, 2),
        "ms_in_the_model": round(model, 2),
    }
