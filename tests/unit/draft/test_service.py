"""The service over real loopback gRPC, with an engine in its own thread."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import draft_pb2_grpc, verifier_pb2

from tests.fakes.path_runner import PathRunner
from tests.unit.draft.rig import BUDGET, VOCAB, opening
from workers.core.block_hash import BlockHasher
from workers.core.draft_session import SessionCommit
from workers.core.errors import UnavailableError
from workers.core.token_tree import TokenTree
from workers.draft.engine import DraftEngine
from workers.draft.outbox import StreamHub
from workers.draft.service import DraftService
from workers.draft.sessions import DraftModelInfo
from workers.kvcache.events import KvEventLog
from workers.kvcache.manager import KvCacheManager
from workers.rpc.channels import open_channel, start_server
from workers.rpc.convert import budget_to_wire, commit_to_wire, opening_to_wire
from workers.rpc.handshake import DrafterIdentity, VerifierIdentity, hello_to_wire

MAX_SESSIONS = 3


@dataclass
class Served:
    address: str
    engine: DraftEngine
    hub: StreamHub
    service: DraftService

    async def until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "the condition did not come true"
            await asyncio.sleep(0.005)

    async def until_free(self) -> None:
        manager = self.engine.manager
        await self.until(
            lambda: self.engine.num_sessions == 0 and manager.num_free_blocks == manager.num_blocks, timeout_s=1.0
        )


class Peer:
    """A verifier's end of one stream."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.proposals: list[pb.Proposal] = []

    async def send(self, **messages: Sequence[Any]) -> None:
        await self.call.write(pb.VerifierFrame(**messages))

    async def frame(self) -> pb.DrafterFrame:
        frame = await asyncio.wait_for(self.call.read(), 10)
        assert isinstance(frame, pb.DrafterFrame), "the stream has ended"
        return frame

    async def proposal(self) -> pb.Proposal:
        while not self.proposals:
            frame = await self.frame()
            assert not frame.errors, frame
            self.proposals.extend(frame.proposals)
        return self.proposals.pop(0)

    async def error(self) -> pb.SessionError:
        while True:
            frame = await self.frame()
            self.proposals.extend(frame.proposals)
            if frame.errors:
                return frame.errors[0]


def hello(**changes: Any) -> pb.Hello:
    identity = {
        "verifier_id": "verifier",
        "incarnation": 1,
        "model": "target-model",
        "model_fingerprint": "t",
        "tokenizer_hash": "tokens",
        "vocab_size": VOCAB,
        **changes,
    }
    return hello_to_wire(VerifierIdentity(**identity))


def commit(session_id: int, base_len: int, tokens: Sequence[int], epoch: int = 1) -> pb.Commit:
    return commit_to_wire(SessionCommit(session_id, epoch, base_len, tuple(tokens), BUDGET))


@asynccontextmanager
async def serve(runner: PathRunner | None = None) -> AsyncIterator[Served]:
    runner = runner or PathRunner(256, VOCAB)
    manager = KvCacheManager(num_blocks=64, block_size=4, hasher=BlockHasher("fake", 4))
    hub, events = StreamHub(), KvEventLog(5)
    engine = DraftEngine(
        runner,
        runner.storage,
        manager,
        DraftModelInfo(VOCAB, 100, (VOCAB - 1,)),
        max_sessions=MAX_SESSIONS,
        max_tokens_per_step=64,
        grow_ahead=2,
        sink=hub.deliver,
        events=events,
        on_failure=lambda: hub.fail(UnavailableError("the draft engine failed; try another drafter")),
    )
    identity = DrafterIdentity("drafter", 5, "draft-model", "d", "tokens", VOCAB, MAX_SESSIONS, 100)
    service = DraftService(engine, hub, identity, events)
    engine.start()
    server = await start_server([lambda s: draft_pb2_grpc.add_DraftServiceServicer_to_server(service, s)])
    try:
        yield Served(server.address, engine, hub, service)
    finally:
        events.close()
        await server.stop(0)
        engine.stop()
        engine.check_invariants()
        assert engine.num_sessions == 0


@asynccontextmanager
async def stream(served: Served, first: pb.Hello | None = None) -> AsyncIterator[Peer]:
    async with open_channel(served.address) as channel:
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        peer = Peer(call)
        await peer.send(hello=first or hello())
        yield peer
        call.cancel()


async def test_open_commit_close() -> None:
    async with serve() as served, stream(served) as peer:
        welcome = (await peer.frame()).welcome
        assert (welcome.drafter_id, welcome.max_sessions, welcome.context_length) == ("drafter", MAX_SESSIONS, 100)
        await peer.send(opens=[opening_to_wire(opening(7))])
        first = await peer.proposal()
        assert (first.session_id, first.epoch, first.base_len) == (7, 1, 5)
        TokenTree.checked(
            tuple(first.tree.token_ids), tuple(first.tree.parent_indices), vocab_size=VOCAB, max_nodes=BUDGET.max_nodes
        )
        await peer.send(commits=[commit(7, 5, [first.tree.token_ids[0], 9])])
        assert (await peer.proposal()).base_len == 7
        await peer.send(closes=[pb.CloseSession(session_id=7, epoch=1)])
        await served.until_free()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer_hash": "others"}, ("target-model", "draft-model", "tokenizer")),
        ({"vocab_size": 0}, ("vocabulary",)),
    ],
)
async def test_a_verifier_that_does_not_fit_is_refused(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    async with serve() as served, stream(served, hello(**changes)) as peer:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await peer.call.read()
        assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert all(word in (failed.value.details() or "") for word in words)


async def test_another_protocol_version_is_refused() -> None:
    first = hello()
    first.protocol_version = 2
    async with serve() as served, stream(served, first) as peer:
        with pytest.raises(grpc.aio.AioRpcError, match="version 2") as failed:
            await peer.call.read()
        assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_padded_vocabulary_is_fine_and_children_stay_below_the_smaller() -> None:
    async with serve() as served, stream(served, hello(vocab_size=10)) as peer:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening())])
        assert max((await peer.proposal()).tree.token_ids) < 10
    async with serve() as served, stream(served, hello(vocab_size=VOCAB + 30)) as peer:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening())])
        assert (await peer.proposal()).tree.token_ids
        await peer.send(commits=[commit(1, 5, [VOCAB + 3])])
        error = await peer.error()
        assert error.code == pb.SESSION_ERROR_CODE_INVALID
        assert f"0 to {VOCAB - 1}" in error.message


async def test_a_stream_without_hello_is_refused() -> None:
    async with serve() as served, open_channel(served.address) as channel:
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        await call.write(pb.VerifierFrame(opens=[opening_to_wire(opening())]))
        with pytest.raises(grpc.aio.AioRpcError, match="hello") as failed:
            await call.read()
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert len(served.hub) == 0


@pytest.mark.parametrize("how", ["cancel", "half_close", "cut"])
async def test_the_end_of_a_stream_frees_its_sessions_at_once(how: str) -> None:
    async with serve() as served, stream(served) as other:
        await other.frame()
        await other.send(opens=[opening_to_wire(opening(1))])
        await other.proposal()
        channel = open_channel(served.address)
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        peer = Peer(call)
        await peer.send(hello=hello(), opens=[opening_to_wire(opening(1)), opening_to_wire(opening(2, (9, 8, 7)))])
        await peer.frame()
        await served.until(lambda: served.engine.num_sessions == 3)
        if how == "cancel":
            call.cancel()
        elif how == "half_close":
            await call.done_writing()
        else:
            await channel.close(0)
        await served.until(lambda: served.engine.num_sessions == 1, timeout_s=1.0)
        assert len(served.hub) == 1
        await other.send(commits=[commit(1, 5, [3])])
        assert (await other.proposal()).base_len == 6
        await channel.close()


async def test_bad_messages_end_one_session_and_never_the_stream() -> None:
    async with serve() as served, stream(served) as peer:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening(1)), opening_to_wire(opening(2))])
        assert {(await peer.proposal()).session_id, (await peer.proposal()).session_id} == {1, 2}

        async def expect(code: str, words: str, **messages: Sequence[Any]) -> None:
            await peer.send(**messages)
            error = await peer.error()
            assert error.code == pb.SessionErrorCode.Value(f"SESSION_ERROR_CODE_{code}")
            assert words in error.message, error.message

        await expect("UNKNOWN_SESSION", "no such session", commits=[commit(99, 5, [1])])
        await expect("STALE_EPOCH", "epoch 1", commits=[commit(2, 5, [1], epoch=0)])
        await expect("STALE_EPOCH", "epoch 1", opens=[opening_to_wire(opening(2))])
        await expect("INVALID", "outside the vocabulary", opens=[opening_to_wire(opening(3, (VOCAB,)))])
        await expect("INVALID", "at least one", opens=[pb.OpenSession(session_id=3, epoch=1)])
        bad_sampling = opening_to_wire(opening(3))
        bad_sampling.sampling.temperature = -1
        await expect("INVALID", "temperature", opens=[bad_sampling])
        foreign_bias = opening_to_wire(opening(3))
        foreign_bias.sampling.logit_bias[VOCAB + 5] = 1.0
        await expect("INVALID", "logit_bias", opens=[foreign_bias])
        await expect("CONTEXT_LENGTH", "holds 100", opens=[opening_to_wire(opening(3, [1] * 101))])
        await expect("INVALID", "base_len is 4", commits=[commit(2, 4, [1])])
        await expect("UNKNOWN_SESSION", "no such", commits=[commit(2, 5, [1])])  # it was ended
        await expect("INVALID", "outside the vocabulary", commits=[commit(1, 5, [VOCAB])])
        await served.until_free()
        await peer.send(opens=[opening_to_wire(opening(1, epoch=2))])
        assert (await peer.proposal()).epoch == 2


async def test_more_sessions_than_offered() -> None:
    async with serve() as served, stream(served) as peer:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening(i)) for i in range(MAX_SESSIONS + 1)])
        error = await peer.error()
        assert (error.session_id, error.code) == (MAX_SESSIONS, pb.SESSION_ERROR_CODE_OVER_CAPACITY)
        assert f"all {MAX_SESSIONS} sessions" in error.message
        await peer.send(
            closes=[pb.CloseSession(session_id=0, epoch=1)], opens=[opening_to_wire(opening(MAX_SESSIONS, epoch=2))]
        )
        while (await peer.proposal()).session_id != MAX_SESSIONS:
            pass


async def test_a_newer_epoch_replaces_the_session() -> None:
    async with serve() as served, stream(served) as peer:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening(1))])
        await peer.proposal()
        await peer.send(opens=[opening_to_wire(opening(1, (4, 4, 4), epoch=3))])
        proposal = await peer.proposal()
        assert (proposal.epoch, proposal.base_len) == (3, 3)
        assert served.engine.num_sessions == 1


async def test_absurd_budgets_are_lowered() -> None:
    async with serve() as served, stream(served) as peer:
        await peer.frame()
        message = opening_to_wire(opening(1))
        message.budget.CopyFrom(budget_to_wire(BUDGET))
        message.budget.max_depth = message.budget.max_width = message.budget.max_nodes = 2**32 - 1
        await peer.send(opens=[message])
        assert len((await peer.proposal()).tree.token_ids) <= 1024


async def test_kv_events_tell_of_blocks_and_load() -> None:
    async with serve() as served, stream(served) as peer, open_channel(served.address) as channel:
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening(1, range(1, 10)))])
        await peer.proposal()
        events: Any = draft_pb2_grpc.DraftServiceStub(channel).KvEvents(verifier_pb2.KvEventsRequest())
        snapshot = await asyncio.wait_for(events.read(), 5)
        assert snapshot.cleared
        assert snapshot.incarnation == 5
        expected = BlockHasher("fake", 4).hashes(range(1, 9), "")
        assert sorted(snapshot.stored_block_hashes) == sorted(expected)
        assert snapshot.load.running_requests == 1
        assert snapshot.load.total_kv_blocks == 64
        events.cancel()


async def test_a_broken_engine_ends_the_streams_and_fails_the_health_check() -> None:
    class Broken(PathRunner):
        def forward(self, chunks: Any) -> Any:
            raise RuntimeError("secret detail")

    async with serve(Broken(256, VOCAB)) as served, stream(served) as peer:
        served.engine.check_health()
        await peer.frame()
        await peer.send(opens=[opening_to_wire(opening(1))])
        with pytest.raises(grpc.aio.AioRpcError, match="try another drafter") as failed:
            await peer.call.read()
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "secret" not in (failed.value.details() or "")
        with pytest.raises(UnavailableError, match="RuntimeError"):
            served.engine.check_health()


async def test_draining_refuses_new_streams_and_sessions() -> None:
    async with serve() as served, stream(served) as peer:
        await peer.frame()
        served.engine.refuse_new_sessions()
        await peer.send(opens=[opening_to_wire(opening(1))])
        assert "shutting down" in (await peer.error()).message
        served.service.draining = True
        async with stream(served) as late:
            with pytest.raises(grpc.aio.AioRpcError, match="shutting down"):
                await late.call.read()
