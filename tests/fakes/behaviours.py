"""What a scripted drafter answers: good, bad and hostile behaviours.

Honest ones follow the protocol under every rule: under `rejection` their trees
come with the distributions that the children were really drawn from. Hostile
ones wrap an honest one or break one rule each.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from outrider.v1 import common_pb2
from outrider.v1 import draft_pb2 as pb

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.sampling_params import VerificationRule
from workers.core.token_tree import ROOT, TokenTree
from workers.rpc.convert import proposal_to_wire

__all__ = [
    "BadDistributions",
    "Behaviour",
    "ConstantToken",
    "Cycle",
    "DeafTo",
    "Dying",
    "Empty",
    "Flood",
    "ForeignTokens",
    "FutureBaseLen",
    "Honest",
    "Late",
    "Oracle",
    "OverCapacity",
    "RandomTrees",
    "ScriptedSession",
    "SessionRefusedError",
    "Silent",
    "Stale",
    "StreamEndError",
    "TooManyNodes",
    "TwinSiblings",
    "WrongEpoch",
]


class StreamEndError(Exception):
    """Raised by a behaviour: the stream ends here, with an error unless `clean`."""

    def __init__(self, *, clean: bool = False) -> None:
        super().__init__("the stream ends")
        self.clean = clean


class SessionRefusedError(Exception):
    """Raised by a behaviour: answer with a `SessionError`."""

    def __init__(self, code: pb.SessionErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class ScriptedSession:
    """What the drafter knows of one request."""

    opening: SessionOpening
    token_ids: list[int]  # committed
    budget: TreeBudget
    paused: bool = False
    turns: int = 0  # proposals asked of it so far

    @property
    def session_id(self) -> int:
        return self.opening.session_id

    @property
    def epoch(self) -> int:
        return self.opening.epoch

    def commit(self, commit: SessionCommit) -> None:
        """Take in committed tokens, which must follow those that are known."""
        self.token_ids.extend(commit.token_ids)
        self.budget = commit.budget
        self.paused = commit.paused or commit.budget.max_nodes == 0


class Behaviour:
    """Base of all: says nothing. `delay_s` passes before every answer."""

    delay_s: float = 0.0

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        """Wire proposals for a session that was opened or got a commit; may raise the exceptions above."""
        yield from ()


Silent = Behaviour


class Honest(Behaviour):
    """A behaviour that draws one correct proposal each time. Distributions are sent under `rejection` only."""

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        session.turns += 1
        proposal = self.propose(session, vocab_size)
        if session.opening.rule is not VerificationRule.REJECTION:
            proposal = Proposal(proposal.base_len, proposal.tree)
        yield proposal_to_wire(session.session_id, session.epoch, proposal)

    def propose(self, session: ScriptedSession, vocab_size: int) -> Proposal:
        raise AssertionError("a subclass says what to propose")


@dataclass
class Oracle(Honest):
    """Knows whole sequences (prompt + output) and proposes what comes next in the one that begins alike.

    `distractors` wrong siblings stand *before* every right token, except under
    `rejection`, where a deterministic drafter can only be a chain.
    """

    sequences: Sequence[Sequence[int]]
    distractors: int = 0

    def propose(self, session: ScriptedSession, vocab_size: int) -> Proposal:
        tokens, budget = session.token_ids, session.budget
        known = len(tokens)
        future: Sequence[int] = next((s[known:] for s in self.sequences if list(s[:known]) == tokens), ())
        if session.opening.rule is VerificationRule.REJECTION:
            return _point_mass_chain(known, future[: min(budget.max_depth, budget.max_nodes)])
        ids: list[int] = []
        parents: list[int] = []
        parent = ROOT
        for token in future[: budget.max_depth]:
            wrong = [(token + 1 + i) % vocab_size for i in range(min(self.distractors, budget.max_width - 1))]
            level = [*wrong, token]
            if len(ids) + len(level) > budget.max_nodes:
                break
            ids += level
            parents += [parent] * len(level)
            parent = len(ids) - 1
        return Proposal(known, TokenTree(tuple(ids), tuple(parents)))


@dataclass
class ConstantToken(Honest):
    """The same token over and over."""

    token: int = 0

    def propose(self, session: ScriptedSession, vocab_size: int) -> Proposal:
        length = min(session.budget.max_depth, session.budget.max_nodes)
        return _point_mass_chain(len(session.token_ids), [self.token] * length)


class Empty(Honest):
    """Answers at once that it has nothing."""

    def propose(self, session: ScriptedSession, vocab_size: int) -> Proposal:
        return Proposal(len(session.token_ids), TokenTree.empty())


@dataclass
class RandomTrees(Honest):
    """Full trees of tokens drawn uniformly, without replacement, from `support` tokens (None = whole vocabulary)."""

    seed: int = 0
    support: int | None = None
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def propose(self, session: ScriptedSession, vocab_size: int) -> Proposal:
        size = min(self.support or vocab_size, vocab_size)
        uniform = DraftDistribution(tuple(range(size)), (1.0 / size,) * size)
        budget, ids, parents, depths = session.budget, list[int](), list[int](), {ROOT: 0}
        distributions: dict[int, DraftDistribution] = {}
        node = ROOT
        # Level order, and how many children a node gets depends on counts only: exact under `rejection`.
        while node < len(ids) and len(ids) < budget.max_nodes:
            if depths[node] < budget.max_depth:
                width = min(budget.max_width, size, budget.max_nodes - len(ids))
                distributions[node] = uniform
                for token in self._random.sample(range(size), width):
                    depths[len(ids)] = depths[node] + 1
                    ids.append(token)
                    parents.append(node)
            node += 1
        return Proposal(len(session.token_ids), TokenTree(tuple(ids), tuple(parents)), distributions)


@dataclass
class DeafTo(Behaviour):
    """As `inner`, but one session never gets an answer."""

    inner: Behaviour
    session_id: int

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        return iter(()) if session.session_id == self.session_id else self.inner.react(session, vocab_size)


@dataclass
class Late(Behaviour):
    """As `inner`, but every answer takes `delay_s`."""

    inner: Behaviour
    delay_s: float = 0.05

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        return self.inner.react(session, vocab_size)


@dataclass
class Stale(Behaviour):
    """Proposes what `inner` would have proposed `lag` tokens ago, honestly labelled with the old base_len."""

    inner: Honest
    lag: int = 1

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        past = replace(session, token_ids=session.token_ids[: max(1, len(session.token_ids) - self.lag)])
        return self.inner.react(past, vocab_size)


@dataclass
class Dying(Behaviour):
    """As `inner` for `after` answers on all sessions together, then the stream breaks. `times` = how often it dies."""

    inner: Behaviour
    after: int = 2
    times: int = 1
    answers: int = 0

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        if self.times and self.answers == self.after:
            self.times -= 1
            self.answers = 0
            raise StreamEndError
        self.answers += 1
        return self.inner.react(session, vocab_size)


@dataclass
class _Broken(Behaviour):
    """Rewrites what `inner` proposes."""

    inner: Behaviour

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        for proposal in self.inner.react(session, vocab_size):
            self.spoil(proposal, session, vocab_size)
            yield proposal

    def spoil(self, proposal: pb.Proposal, session: ScriptedSession, vocab_size: int) -> None:
        raise AssertionError("a subclass says how to break it")


class WrongEpoch(_Broken):
    """Labels everything with the epoch before."""

    def spoil(self, proposal: pb.Proposal, session: ScriptedSession, vocab_size: int) -> None:
        proposal.epoch -= 1


class FutureBaseLen(_Broken):
    """Claims to draft for tokens that are not committed yet."""

    def spoil(self, proposal: pb.Proposal, session: ScriptedSession, vocab_size: int) -> None:
        proposal.base_len += 7


class ForeignTokens(_Broken):
    """Ends with a token that the vocabulary does not have."""

    def spoil(self, proposal: pb.Proposal, session: ScriptedSession, vocab_size: int) -> None:
        proposal.tree.token_ids[-1] = vocab_size + 5


@dataclass
class BadDistributions(_Broken):
    """Under `rejection`: distributions that do not sum to 1 (`missing`: none at all)."""

    missing: bool = False

    def spoil(self, proposal: pb.Proposal, session: ScriptedSession, vocab_size: int) -> None:
        if self.missing:
            proposal.ClearField("distributions")
        for entry in proposal.distributions:
            entry.distribution.probs[0] /= 2


@dataclass
class _Shaped(Behaviour):
    """Proposes trees that break one rule of trees."""

    def tree(self, session: ScriptedSession) -> common_pb2.TokenTree:
        raise AssertionError("a subclass says which tree")

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        yield pb.Proposal(
            session_id=session.session_id,
            epoch=session.epoch,
            base_len=len(session.token_ids),
            tree=self.tree(session),
        )


class Cycle(_Shaped):
    """Two nodes that are each other's parent."""

    def tree(self, session: ScriptedSession) -> common_pb2.TokenTree:
        return common_pb2.TokenTree(token_ids=[1, 2], parent_indices=[1, 0])


class TwinSiblings(_Shaped):
    """Two children of the root with the same token."""

    def tree(self, session: ScriptedSession) -> common_pb2.TokenTree:
        return common_pb2.TokenTree(token_ids=[1, 1], parent_indices=[-1, -1])


class TooManyNodes(_Shaped):
    """One node more than the budget allows."""

    def tree(self, session: ScriptedSession) -> common_pb2.TokenTree:
        nodes = session.budget.max_nodes + 1
        return common_pb2.TokenTree(token_ids=[1] * nodes, parent_indices=range(-1, nodes - 1))


@dataclass
class Flood(Behaviour):
    """Sends each proposal of `inner` very many times."""

    inner: Behaviour
    copies: int = 5000

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        for proposal in self.inner.react(session, vocab_size):
            for _ in range(self.copies):
                yield proposal


class OverCapacity(Behaviour):
    """Refuses every session."""

    def react(self, session: ScriptedSession, vocab_size: int) -> Iterator[pb.Proposal]:
        raise SessionRefusedError(pb.SESSION_ERROR_CODE_OVER_CAPACITY, "no room")


def _point_mass_chain(base_len: int, tokens: Sequence[int]) -> Proposal:
    """A chain whose every token was certain."""
    distributions = {node: DraftDistribution((token,), (1.0,)) for node, token in enumerate(tokens, start=ROOT)}
    return Proposal(base_len, TokenTree.chain(tokens), distributions)
