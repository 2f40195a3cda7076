"""A verifier's engine in miniature: its target knows the whole answer, its clock measures every call."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes.scripted_drafter import ThreadedDrafter
from workers.core.proposal import Proposal, TreeBudget
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.core.statistics import GenerationStats
from workers.core.token_tree import ROOT
from workers.proposers.base import CommitUpdate, DraftSession, Proposer, Want
from workers.proposers.draft_link import LinkOptions
from workers.proposers.remote import RemoteOptions, RemoteProposer
from workers.rpc.handshake import VerifierIdentity

__all__ = [
    "BUDGET",
    "Running",
    "answer",
    "connected",
    "eventually",
    "generation_request",
    "remote_proposer",
    "run_request",
]

VOCAB_SIZE = 1000
BUDGET = TreeBudget(max_depth=4, max_width=2, max_nodes=8)
PROMPT_TOKENS = 5


def answer(length: int = 60, salt: int = 0) -> list[int]:
    """A sequence without repeated pairs nearby: prompt and output."""
    return [(i * 37 + salt * 101 + i * i * 7) % VOCAB_SIZE for i in range(length)]


def remote_proposer(**options: object) -> RemoteProposer:
    identity = VerifierIdentity("verifier", 7, "target", "fingerprint", "hash", VOCAB_SIZE)
    values = {"link": LinkOptions(min_backoff_s=0.02, max_backoff_s=0.1), **options}
    return RemoteProposer(identity, options=RemoteOptions(**values))  # type: ignore[arg-type]


def eventually(condition: Callable[[], bool], timeout_s: float = 3.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def connected(proposer: RemoteProposer, *drafters: ThreadedDrafter) -> None:
    assert proposer.connect([drafter.address for drafter in drafters], 3.0)


def generation_request(
    tokens: list[int],
    drafters: tuple[DrafterEndpoint, ...],
    *,
    rule: VerificationRule = VerificationRule.COUPLED,
    budget: TreeBudget = BUDGET,
    mode: SpeculationMode = SpeculationMode.AUTO,
) -> GenerationRequest:
    return GenerationRequest(
        request_id="r",
        prompt_token_ids=tuple(tokens[:PROMPT_TOKENS]),
        sampling=SamplingParams(),
        seed=1,
        rule=rule,
        mode=mode,
        budget=budget,
        drafters=drafters,
    )


@dataclass
class Running:
    """One request under way."""

    proposer: Proposer
    request: GenerationRequest
    sequence: list[int]  # prompt and the whole output
    key: int = 1
    committed: list[int] = field(init=False)
    stats: GenerationStats = field(default_factory=GenerationStats)
    slowest_wait_s: float = 0.0
    waits: list[float] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = list(self.request.prompt_token_ids)

    def open(self) -> "Running":
        self.proposer.open(DraftSession(self.key, self.request, self.committed, self.stats))
        self.proposer.flush()
        return self

    @property
    def done(self) -> bool:
        return len(self.committed) == len(self.sequence)

    def want(self) -> dict[int, Want]:
        return {self.key: Want(len(self.committed), self.request.budget)}

    def step(self, timeout_s: float = 0.5, budget: TreeBudget | None = None, *, paused: bool = False) -> int:
        """Wait, collect, verify, commit, flush. The number of accepted draft tokens."""
        started = time.monotonic()
        self.proposer.wait(self.want(), timeout_s)
        self.waits.append(time.monotonic() - started)
        proposal = self.proposer.collect(self.want()).get(self.key)
        accepted = self._verify(proposal)
        self._commit(accepted + 1, budget or self.request.budget, paused)
        self.proposer.flush()
        return accepted

    def commit_plainly(self) -> None:
        """Commit one token without a proposal, and without a flush."""
        self._commit(1, self.request.budget, False)

    def _commit(self, count: int, budget: TreeBudget, paused: bool) -> None:
        base_len = len(self.committed)
        tokens = self.sequence[base_len : base_len + count]
        self.committed += tokens
        self.proposer.commit([CommitUpdate(self.key, base_len, tuple(tokens), budget, paused=paused)])

    def _verify(self, proposal: Proposal | None) -> int:
        if proposal is None:
            return 0
        assert proposal.base_len == len(self.committed)
        budget, tree = self.request.budget, proposal.tree
        assert 0 < len(tree) <= budget.max_nodes
        assert tree.max_depth <= budget.max_depth
        assert max(map(len, tree.children.values())) <= budget.max_width
        self.proposals.append(proposal)
        node, accepted = ROOT, 0
        while True:
            position = len(self.committed) + accepted
            token = self.sequence[position] if position < len(self.sequence) else -1
            child = tree.child_with_token(node, token)
            if child is None:
                return accepted
            node, accepted = child, accepted + 1

    def close(self) -> None:
        self.proposer.close(self.key)
        self.proposer.flush()


def run_request(
    proposer: Proposer,
    request: GenerationRequest,
    sequence: list[int],
    *,
    timeout_s: float = 0.5,
    key: int = 1,
    step_s: float = 0.0,
) -> Running:
    """Run a request to its end; a step takes `step_s` beside its wait."""
    running = Running(proposer, request, sequence, key).open()
    while not running.done:
        running.step(timeout_s)
        time.sleep(step_s)
    running.close()
    return running
