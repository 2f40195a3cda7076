"""A drafter that does what a test tells it: a real `DraftService` on loopback gRPC.

    with ThreadedDrafter(Oracle([prompt + output])) as drafter:
        endpoint = drafter.endpoint            # for GenerationRequest.drafters
        ...
        assert drafter.fake.commits

`ScriptedDrafter` is the same inside a running event loop (`await start()`,
`await stop()`). What it proposes is a `Behaviour` of tests/fakes/behaviours.py.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import draft_pb2_grpc, verifier_pb2

from tests.fakes.behaviours import Behaviour, ScriptedSession, SessionRefusedError, StreamEndError
from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.errors import UnavailableError
from workers.core.request import DrafterEndpoint
from workers.rpc.channels import RunningServer, start_server
from workers.rpc.convert import commit_from_wire, opening_from_wire
from workers.rpc.handshake import DrafterIdentity, VerifierIdentity, hello_from_wire, welcome_to_wire
from workers.rpc.loop_thread import LoopThread

__all__ = ["ScriptedDrafter", "ThreadedDrafter"]


class ScriptedDrafter(draft_pb2_grpc.DraftServiceServicer):
    """Serves `Speculate` with a `Behaviour`, and records what verifiers said."""

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        vocab_size: int = 1000,
        tokenizer_hash: str | None = None,  # None = echo the verifier's
        drafter_id: str = "scripted",
        incarnation: int = 1,
        max_sessions: int = 64,
        context_length: int = 0,
    ) -> None:
        self.behaviour = behaviour
        self.vocab_size = vocab_size
        self.tokenizer_hash = tokenizer_hash
        self.drafter_id = drafter_id
        self.incarnation = incarnation
        self.max_sessions = max_sessions
        self.context_length = context_length
        self.hellos: list[VerifierIdentity] = []
        self.opens: list[SessionOpening] = []
        self.commits: list[SessionCommit] = []
        self.closes: list[int] = []
        self.open_sessions: dict[int, ScriptedSession] = {}
        self.frames = 0
        self.violations: list[str] = []  # what the verifier did wrong; tests assert that it is empty
        self._running: RunningServer | None = None

    async def start(self, port: int = 0) -> str:
        """Listen on 127.0.0.1 and return the address. A given port allows a restart at the same place."""
        self._running = await start_server(
            [lambda server: draft_pb2_grpc.add_DraftServiceServicer_to_server(self, server)],
            port=port,
            service_names=["outrider.v1.DraftService"],
        )
        return self._running.address

    async def stop(self) -> None:
        """Go away at once, as a killed process would: open streams break."""
        if self._running is not None:
            await self._running.stop(grace_s=0)
            self._running = None

    async def Speculate(
        self, request_iterator: AsyncIterator[pb.VerifierFrame], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.DrafterFrame]:
        outgoing: asyncio.Queue[pb.DrafterFrame | StreamEndError] = asyncio.Queue()
        sessions: dict[int, ScriptedSession] = {}
        self.open_sessions = sessions
        reader = asyncio.create_task(self._read(request_iterator, sessions, outgoing))
        try:
            while True:
                frame = await outgoing.get()
                if isinstance(frame, StreamEndError):
                    if frame.clean:
                        return
                    raise UnavailableError("the scripted drafter ends the stream")
                yield frame
        finally:
            reader.cancel()

    async def KvEvents(
        self, request: verifier_pb2.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.KvEventsResponse]:
        """An empty cache that never changes."""
        yield verifier_pb2.KvEventsResponse(incarnation=self.incarnation, cleared=True)

    async def _read(
        self,
        frames: AsyncIterator[pb.VerifierFrame],
        sessions: dict[int, ScriptedSession],
        outgoing: asyncio.Queue[pb.DrafterFrame | StreamEndError],
    ) -> None:
        background: set[asyncio.Task[None]] = set()
        async for frame in frames:
            self.frames += 1
            if frame.HasField("hello"):
                outgoing.put_nowait(self._welcome(frame.hello))
            answer = self._answer(self._apply(frame, sessions))
            if answer is None:
                continue
            if not self.behaviour.delay_s:
                outgoing.put_nowait(answer)
                continue
            task = asyncio.create_task(self._later(answer, outgoing))
            background.add(task)
            task.add_done_callback(background.discard)
        for task in background:
            task.cancel()
        outgoing.put_nowait(StreamEndError(clean=True))

    def _welcome(self, hello: pb.Hello) -> pb.DrafterFrame:
        verifier = hello_from_wire(hello)
        self.hellos.append(verifier)
        identity = DrafterIdentity(
            drafter_id=self.drafter_id,
            incarnation=self.incarnation,
            model="scripted",
            model_fingerprint="scripted",
            tokenizer_hash=verifier.tokenizer_hash if self.tokenizer_hash is None else self.tokenizer_hash,
            vocab_size=self.vocab_size,
            max_sessions=self.max_sessions,
            context_length=self.context_length,
        )
        return pb.DrafterFrame(welcome=welcome_to_wire(identity))

    def _apply(self, frame: pb.VerifierFrame, sessions: dict[int, ScriptedSession]) -> list[ScriptedSession]:
        """Take in a frame; the sessions whose turn it is to propose."""
        turn: dict[int, ScriptedSession] = {}
        for opens in frame.opens:
            opening = opening_from_wire(opens, vocab_size=self.vocab_size)
            self.opens.append(opening)
            turn[opening.session_id] = sessions[opening.session_id] = ScriptedSession(
                opening, list(opening.token_ids), opening.budget, opening.budget.max_nodes == 0
            )
        for commits in frame.commits:
            commit = commit_from_wire(commits, vocab_size=self.vocab_size)
            self.commits.append(commit)
            session = sessions.get(commit.session_id)
            if session is None or session.epoch != commit.epoch:
                self.violations.append(f"a commit for an unknown session: {commit}")
                continue
            if commit.base_len != len(session.token_ids):
                self.violations.append(f"{len(session.token_ids)} tokens are known, but {commit}")
            session.commit(commit)
            turn[commit.session_id] = session
        for closes in frame.closes:
            self.closes.append(closes.session_id)
            known = sessions.get(closes.session_id)
            if known is None or known.epoch != closes.epoch:
                self.violations.append(f"a close for an unknown session: {closes}")
                continue
            sessions.pop(closes.session_id, None)
            turn.pop(closes.session_id, None)
        return [session for session in turn.values() if not session.paused]

    def _answer(self, turn: list[ScriptedSession]) -> pb.DrafterFrame | StreamEndError | None:
        """What the behaviour says now (before any delay: late means stale); None = nothing."""
        reply = pb.DrafterFrame()
        for session in turn:
            try:
                reply.proposals.extend(self.behaviour.react(session, self.vocab_size))
            except SessionRefusedError as refusal:
                error = pb.SessionError(session_id=session.session_id, epoch=session.epoch, message=str(refusal))
                error.code = refusal.code
                reply.errors.append(error)
            except StreamEndError as end:
                return end
        return reply if reply.proposals or reply.errors else None

    async def _later(
        self, answer: pb.DrafterFrame | StreamEndError, outgoing: asyncio.Queue[pb.DrafterFrame | StreamEndError]
    ) -> None:
        await asyncio.sleep(self.behaviour.delay_s)
        outgoing.put_nowait(answer)


class ThreadedDrafter:
    """A `ScriptedDrafter` on its own thread, for tests that are not asynchronous. A context manager."""

    def __init__(self, behaviour: Behaviour | ScriptedDrafter) -> None:
        self.fake = behaviour if isinstance(behaviour, ScriptedDrafter) else ScriptedDrafter(behaviour)
        self.address = ""
        self._thread: LoopThread | None = None

    @property
    def endpoint(self) -> DrafterEndpoint:
        return DrafterEndpoint(self.fake.drafter_id, self.address, self.fake.incarnation)

    def start(self) -> Self:
        """Listen; after `stop` again at the same address, with the next incarnation."""
        if self.address:
            self.fake.incarnation += 1
        port = int(self.address.rpartition(":")[2]) if self.address else 0
        self._thread = LoopThread("scripted-drafter")
        self.address = self._thread.call(self.fake.start(port))
        return self

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.call(self.fake.stop())
            self._thread.stop()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
