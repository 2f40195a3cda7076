"""An engine over the path-checking runner, driven by hand."""

from collections.abc import Sequence

import torch

from tests.fakes.path_runner import PathRunner, table_logits
from workers.core.block_hash import BlockHasher
from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.proposal import Proposal, TreeBudget
from workers.core.sampling_params import SamplingParams, VerificationRule
from workers.draft.engine import DraftEngine
from workers.draft.messages import FrameIn, FrameOut, SessionClose, SessionFailure
from workers.draft.sessions import DraftModelInfo
from workers.kvcache.manager import KvCacheManager
from workers.sampling.filters import best_token
from workers.sampling.noise import gumbel_noise

__all__ = ["BUDGET", "GREEDY", "VOCAB", "Rig", "opening"]

VOCAB = 64
EOS = 63
BUDGET = TreeBudget(max_depth=4, max_width=3, max_nodes=9)
GREEDY = SamplingParams(temperature=0.0)


def opening(
    session_id: int = 1,
    tokens: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    epoch: int = 1,
    prompt_tokens: int | None = None,
    sampling: SamplingParams = GREEDY,
    seed: int = 7,
    rule: VerificationRule = VerificationRule.COUPLED,
    budget: TreeBudget = BUDGET,
    salt: str = "",
) -> SessionOpening:
    prompt = len(tokens) if prompt_tokens is None else prompt_tokens
    return SessionOpening(session_id, epoch, tuple(tokens), prompt, sampling, seed, rule, budget, salt)


class Rig:
    """The engine without its thread; collects what the sink gets and checks all books after every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_sessions: int = 8,
        max_tokens: int = 64,
        grow_ahead: int = 2,
        context_length: int = 128,
        **runner: object,
    ) -> None:
        self.runner = PathRunner(num_blocks * block_size, VOCAB, **runner)  # type: ignore[arg-type]
        hasher = BlockHasher("fake", block_size)
        self.manager = KvCacheManager(num_blocks=num_blocks, block_size=block_size, hasher=hasher)
        self.engine = DraftEngine(
            self.runner,
            self.runner.storage,
            self.manager,
            DraftModelInfo(VOCAB, context_length, (EOS,)),
            max_sessions=max_sessions,
            max_tokens_per_step=max_tokens,
            grow_ahead=grow_ahead,
            sink=self._sink,
        )
        self.proposals: dict[int, list[Proposal]] = {}
        self.failures: list[SessionFailure] = []

    def _sink(self, _: int, frame: FrameOut) -> None:
        for sent in frame.proposals:
            self.proposals.setdefault(sent.session_id, []).append(sent.proposal)
        self.failures.extend(frame.failures)

    def open(self, *openings: SessionOpening, stream: int = 0) -> None:
        self.frame(FrameIn(stream, VOCAB, opens=openings))

    def commit(
        self,
        session_id: int,
        base_len: int,
        tokens: Sequence[int],
        *,
        epoch: int = 1,
        budget: TreeBudget = BUDGET,
        paused: bool = False,
        stream: int = 0,
    ) -> None:
        commit = SessionCommit(session_id, epoch, base_len, tuple(tokens), budget, paused)
        self.frame(FrameIn(stream, VOCAB, commits=(commit,)))

    def close(self, session_id: int, *, epoch: int = 1, stream: int = 0) -> None:
        self.frame(FrameIn(stream, VOCAB, closes=(SessionClose(session_id, epoch),)))

    def frame(self, frame: FrameIn) -> None:
        self.engine.handle(frame)
        self.engine.check_invariants()

    def step(self) -> bool:
        worked = self.engine.step()
        self.engine.check_invariants()
        return worked

    def settle(self, limit: int = 1000) -> int:
        """Step until there is nothing to do; returns the number of forwards."""
        before = self.engine.counters.forwards
        for _ in range(limit):
            if not self.step():
                return self.engine.counters.forwards - before
        raise AssertionError("the engine does not come to rest")

    def until_proposal(self, session_id: int, limit: int = 50) -> Proposal:
        """Step until the session's next proposal."""
        known = len(self.proposals.get(session_id, []))
        for _ in range(limit):
            self.step()
            if len(self.proposals.get(session_id, [])) > known:
                return self.proposals[session_id][-1]
        raise AssertionError("no proposal")

    def last(self, session_id: int = 1) -> Proposal:
        return self.proposals[session_id][-1]

    def assert_all_free(self) -> None:
        """Every block can be handed out again."""
        self.engine.check_invariants()
        assert self.engine.num_sessions == 0
        assert self.manager.num_free_blocks == self.manager.num_blocks


def target_token(path: Sequence[int], seed: int | None = None) -> int:
    """What a target with the draft's own table chooses after `path` (greedy without a seed)."""
    logits = table_logits(path, VOCAB)
    if seed is None:
        return best_token(logits)
    return best_token(torch.log_softmax(logits, 0) + gumbel_noise(seed, len(path), VOCAB))
