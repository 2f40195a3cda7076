"""Greetings that go wrong, and a drafter whose behaviour changes all the time."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from outrider.v1 import draft_pb2 as pb

from tests.fakes.behaviours import (
    Behaviour,
    ConstantToken,
    Cycle,
    Dying,
    Empty,
    Flood,
    ForeignTokens,
    FutureBaseLen,
    Late,
    Oracle,
    OverCapacity,
    RandomTrees,
    Silent,
    Stale,
    TooManyNodes,
    WrongEpoch,
)
from tests.fakes.scripted_drafter import ScriptedDrafter, ThreadedDrafter
from tests.unit.proposers.driver import Running, answer, generation_request, remote_proposer
from workers.core.errors import IncompatibleError
from workers.core.sampling_params import VerificationRule
from workers.proposers.counters import LinkState
from workers.proposers.draft_link import LinkOptions
from workers.proposers.remote import RemoteProposer

Frames = AsyncIterator[pb.VerifierFrame]
Context = grpc.aio.ServicerContext[Any, Any]


class Rude(ScriptedDrafter):
    """Sends a proposal instead of a welcome."""

    async def Speculate(self, request_iterator: Frames, context: Context) -> AsyncIterator[pb.DrafterFrame]:
        yield pb.DrafterFrame(proposals=[pb.Proposal()])
        await asyncio.Event().wait()


class Mute(ScriptedDrafter):
    """Takes the call and says nothing at all."""

    async def Speculate(self, request_iterator: Frames, context: Context) -> AsyncIterator[pb.DrafterFrame]:
        await asyncio.Event().wait()
        yield pb.DrafterFrame()


class Curt(ScriptedDrafter):
    """Ends the stream at once, as if all were well."""

    async def Speculate(self, request_iterator: Frames, context: Context) -> AsyncIterator[pb.DrafterFrame]:
        return
        yield pb.DrafterFrame()


class Unwilling(ScriptedDrafter):
    """Finds that the verifier does not fit."""

    async def Speculate(self, request_iterator: Frames, context: Context) -> AsyncIterator[pb.DrafterFrame]:
        await anext(request_iterator)
        raise IncompatibleError("the tokenizers differ")
        yield pb.DrafterFrame()


class Newer(ScriptedDrafter):
    """Speaks another version of the protocol."""

    def _welcome(self, hello: pb.Hello) -> pb.DrafterFrame:
        frame = super()._welcome(hello)
        frame.welcome.protocol_version = 2
        return frame


@pytest.mark.parametrize(
    ("kind", "state", "incompatible"),
    [
        (Rude, LinkState.BARRED, 0),
        (Mute, LinkState.DOWN, 0),
        (Curt, LinkState.DOWN, 0),
        (Unwilling, LinkState.BARRED, 1),
        (Newer, LinkState.BARRED, 1),
    ],
)
def test_greetings_that_go_wrong(
    kind: Callable[[Behaviour], ScriptedDrafter], state: LinkState, incompatible: int
) -> None:
    proposer = remote_proposer(link=LinkOptions(handshake_timeout_s=2.0, min_backoff_s=5.0))
    with ThreadedDrafter(kind(Behaviour())) as drafter:
        deadline = time.monotonic() + 10.0
        proposer.connect([drafter.address])
        while not proposer.counters.stream_failures and time.monotonic() < deadline:
            proposer.connect([drafter.address], 0.02)
        assert [link.state for link in proposer.links()] == [state]
        assert proposer.counters.incompatible == incompatible
        assert proposer.counters.streams == 0
    proposer.shutdown()


def test_a_barred_drafter_is_tried_again_later() -> None:
    proposer = remote_proposer(link=LinkOptions(barred_s=0.2))
    with ThreadedDrafter(ScriptedDrafter(Behaviour(), tokenizer_hash="other")) as drafter:
        assert not proposer.connect([drafter.address], 0.1)
        drafter.fake.tokenizer_hash = None
        assert proposer.connect([drafter.address], 3.0)
    proposer.shutdown()


def test_shutdown_with_open_sessions_is_quick_and_frees_the_drafter() -> None:
    sequence = answer()
    proposer = remote_proposer()
    with ThreadedDrafter(Late(Oracle([sequence]), 0.2)) as drafter:
        assert proposer.connect([drafter.address], 3.0)
        Running(proposer, generation_request(sequence, (drafter.endpoint,)), sequence).open()
        started = time.monotonic()
        proposer.shutdown()
        assert time.monotonic() - started < 1.0


class Moody(Behaviour):
    """A different behaviour for every answer."""

    def __init__(self, moods: list[Behaviour], seed: int) -> None:
        self.moods = moods
        self.random = random.Random(seed)

    def react(self, session: Any, vocab_size: int) -> Any:
        return self.random.choice(self.moods).react(session, vocab_size)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_drafters_do_requests_go_on(seed: int) -> None:
    """Six requests on two moody drafters: nothing raised, nothing lost, no wait longer than it was told."""
    sequences = [answer(salt=salt) for salt in range(6)]
    oracle = Oracle(sequences, distractors=1)
    moods: list[Behaviour] = [
        oracle, oracle, oracle, oracle, Empty(), Silent(), Stale(oracle), ConstantToken(1), RandomTrees(seed),
        Cycle(), ForeignTokens(ConstantToken(2)), FutureBaseLen(oracle), OverCapacity(), TooManyNodes(),
        WrongEpoch(oracle), Dying(oracle, after=3, times=100), Flood(oracle, copies=100),
    ]  # fmt: skip
    proposer: RemoteProposer = remote_proposer(over_capacity_s=0.01)
    rng = random.Random(seed)
    with ThreadedDrafter(Moody(moods, seed)) as first, ThreadedDrafter(Moody(moods, seed + 1)) as second:
        proposer.connect([first.address, second.address], 3.0)
        runs = []
        for key, sequence in enumerate(sequences):
            drafters = [first.endpoint, second.endpoint]
            rng.shuffle(drafters)
            rule = rng.choice([VerificationRule.COUPLED, VerificationRule.REJECTION])
            runs.append(
                Running(proposer, generation_request(sequence, tuple(drafters), rule=rule), sequence, key).open()
            )
        while active := [run for run in runs if not run.done]:
            rng.choice(active).step(timeout_s=0.02, paused=rng.random() < 0.1)
        for run in runs:
            run.close()
        assert [run.committed for run in runs] == sequences
        assert sorted(wait for run in runs for wait in run.waits)[-3] < 0.2  # a busy machine may be late twice
        assert sum(run.stats.invalid_proposals for run in runs) == proposer.counters.invalid > 0
        assert sum(run.stats.stale_proposals for run in runs) == proposer.counters.stale
        assert all(link.sessions == 0 for link in proposer.links())
    proposer.shutdown()
