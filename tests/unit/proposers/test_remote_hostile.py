"""The remote proposer with drafters that break the rules: speed may suffer, nothing else."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from outrider.v1 import draft_pb2 as pb

from tests.fakes.behaviours import (
    BadDistributions,
    Behaviour,
    ConstantToken,
    Cycle,
    Flood,
    ForeignTokens,
    FutureBaseLen,
    Oracle,
    Stale,
    TooManyNodes,
    TwinSiblings,
    WrongEpoch,
)
from tests.fakes.scripted_drafter import ScriptedDrafter, ThreadedDrafter
from tests.unit.proposers.driver import (
    Running,
    answer,
    eventually,
    generation_request,
    remote_proposer,
    run_request,
)
from workers.core.sampling_params import VerificationRule
from workers.proposers.counters import LinkState
from workers.proposers.draft_link import LinkOptions
from workers.proposers.remote import RemoteProposer

SEQUENCE = answer()
ORACLE = Oracle([SEQUENCE])


@pytest.mark.parametrize(
    ("behaviour", "rule"),
    [
        (Cycle(), VerificationRule.COUPLED),
        (TwinSiblings(), VerificationRule.COUPLED),
        (TooManyNodes(), VerificationRule.COUPLED),
        (ForeignTokens(ORACLE), VerificationRule.COUPLED),
        (FutureBaseLen(ORACLE), VerificationRule.COUPLED),
        (BadDistributions(ORACLE), VerificationRule.REJECTION),
        (BadDistributions(ORACLE, missing=True), VerificationRule.REJECTION),
    ],
    ids=["cycle", "twins", "too many nodes", "foreign tokens", "future", "bad sums", "no distributions"],
)
def test_a_request_leaves_a_drafter_that_breaks_the_rules(
    proposer: RemoteProposer, behaviour: Behaviour, rule: VerificationRule
) -> None:
    with ThreadedDrafter(behaviour) as bad, ThreadedDrafter(ORACLE) as good:
        assert proposer.connect([bad.address, good.address], 3.0)
        request = generation_request(SEQUENCE, (bad.endpoint, good.endpoint), rule=rule)
        run = run_request(proposer, request, SEQUENCE)
        assert run.committed == SEQUENCE
        assert run.stats.invalid_proposals == proposer.counters.invalid == 1
        assert eventually(lambda: bad.fake.closes == [1])
        assert run.proposals  # of the good one
        assert run.stats.drafter_changes == 1
        # The stream itself goes on: another request may try.
        assert all(link.state is LinkState.UP for link in proposer.links())


def test_alone_with_a_bad_drafter_the_request_decodes_plainly(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Cycle()) as bad:
        assert proposer.connect([bad.address], 3.0)
        run = run_request(proposer, generation_request(SEQUENCE, (bad.endpoint,)), SEQUENCE)
        assert run.committed == SEQUENCE
        assert not run.proposals
        assert run.stats.invalid_proposals == 1
        assert max(run.waits) < 0.4
        assert len(bad.fake.opens) == 1


def test_messages_of_another_epoch_are_dropped_and_counted(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(WrongEpoch(ORACLE)) as drafter:
        assert proposer.connect([drafter.address], 3.0)
        run = run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE, timeout_s=0.03)
        assert run.committed == SEQUENCE
        assert not run.proposals
        assert proposer.counters.outdated > 0
        assert run.stats.invalid_proposals == 0
        assert sum(wait > 0.02 for wait in run.waits) == 1  # as if it had said nothing


@pytest.mark.parametrize("lag", [1, 3, 40])
def test_old_base_lens_are_stale_not_invalid(proposer: RemoteProposer, lag: int) -> None:
    wrong = [(token + 1) % 1000 for token in SEQUENCE]
    oracle = Oracle([SEQUENCE[:k] + wrong[k:] for k in range(1, len(SEQUENCE))])
    with ThreadedDrafter(Stale(oracle, lag=lag)) as drafter:
        assert proposer.connect([drafter.address], 3.0)
        run = run_request(proposer, generation_request(SEQUENCE, (drafter.endpoint,)), SEQUENCE, timeout_s=0.03)
        assert run.committed == SEQUENCE
        assert run.stats.invalid_proposals == 0
        assert run.stats.stale_proposals == proposer.counters.stale > 0


def test_a_constant_token_is_never_accepted_but_harmless(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(ConstantToken(999)) as drafter:
        assert proposer.connect([drafter.address], 3.0)
        run = run_request(proposer, generation_request(SEQUENCE[:20], (drafter.endpoint,)), SEQUENCE[:20])
        assert run.committed == SEQUENCE[:20]
        assert len(run.waits) == 15


def test_a_flooding_drafter_is_barred(proposer: RemoteProposer) -> None:
    with ThreadedDrafter(Flood(ORACLE, copies=5000)) as flood, ThreadedDrafter(ORACLE) as good:
        assert proposer.connect([flood.address, good.address], 3.0)
        request = generation_request(SEQUENCE, (flood.endpoint, good.endpoint))
        run = run_request(proposer, request, SEQUENCE)
        assert run.committed == SEQUENCE
        assert run.proposals
        states = {link.address: link.state for link in proposer.links()}
        assert states == {flood.address: LinkState.BARRED, good.address: LinkState.UP}


def test_a_foreign_tokenizer_is_refused_loudly_and_not_retried(
    proposer: RemoteProposer, caplog: pytest.LogCaptureFixture
) -> None:
    other = ThreadedDrafter(ScriptedDrafter(ORACLE, tokenizer_hash="other"))
    with other, ThreadedDrafter(ORACLE) as good, caplog.at_level(logging.ERROR):
        proposer.connect([other.address], 0.3)
        run = run_request(proposer, generation_request(SEQUENCE, (other.endpoint, good.endpoint)), SEQUENCE)
        assert run.committed == SEQUENCE
        assert not other.fake.opens
        assert len(other.fake.hellos) == 1
        assert proposer.counters.incompatible == 1
        assert any("tokenizers differ" in r.message and "'target'" in r.message for r in caplog.records)


class DeafDrafter(ScriptedDrafter):
    """Welcomes and then never reads again, as a process that is stuck would."""

    async def Speculate(
        self, request_iterator: AsyncIterator[pb.VerifierFrame], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.DrafterFrame]:
        first = await anext(aiter(request_iterator))
        yield self._welcome(first.hello)
        await asyncio.Event().wait()


def test_a_drafter_that_does_not_read_is_given_up() -> None:
    long = answer(60_000)  # about 110 kB a frame; HTTP/2 windows grow to some MB before they block
    proposer = remote_proposer(link=LinkOptions(max_unsent_frames=3, min_backoff_s=5.0))
    with ThreadedDrafter(DeafDrafter(Behaviour())) as drafter:
        assert proposer.connect([drafter.address], 3.0)
        request = generation_request(long, (drafter.endpoint,))
        runs = [Running(proposer, request, long, key=key) for key in range(60)]
        for run in runs:
            run.committed = long[:-100]
            run.open()
        assert eventually(lambda: not proposer.connect([drafter.address]))
        assert proposer.counters.stream_failures == 1
        runs[0].step(timeout_s=1.0)
        assert runs[0].waits[-1] < 0.5
    proposer.shutdown()
