"""One drafter, as the engine's thread sees it: its state, its sessions and the frame being gathered for it."""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field

from outrider.v1 import draft_pb2 as pb

from workers.proposers.counters import LinkState, LinkStatus
from workers.proposers.draft_link import DraftLink
from workers.rpc.handshake import DrafterIdentity
from workers.scheduling.lateness import Lateness

__all__ = ["Peer"]


@dataclass(eq=False)
class Peer:
    link: DraftLink
    loop: asyncio.AbstractEventLoop
    running: "Future[None]"
    created_s: float
    last_used_s: float
    state: LinkState = LinkState.CONNECTING
    generation: int = 0
    drafter: DrafterIdentity | None = None
    sessions: set[int] = field(default_factory=set)
    strikes: int = 0  # since it last sent anything: one wait in vain, and each further time as long as that
    struck_s: float = 0.0
    wait_s: float = 0.0  # how long the wait in vain was
    lateness: Lateness = field(default_factory=Lateness)
    frame: pb.VerifierFrame = field(default_factory=pb.VerifierFrame)

    @property
    def address(self) -> str:
        return self.link.address

    def room_for(self, num_tokens: int) -> bool:
        """Whether it is connected and may be given one more session of that length."""
        if self.state is not LinkState.UP or self.drafter is None:
            return False
        fits = not self.drafter.context_length or num_tokens < self.drafter.context_length
        return fits and len(self.sessions) < self.drafter.max_sessions

    def up(self, generation: int, drafter: DrafterIdentity) -> None:
        """A welcome is a sign of life, and another process has a pace of its own."""
        if self.drafter is not None and self.drafter.incarnation != drafter.incarnation:
            self.lateness = Lateness()
        self.state, self.generation, self.drafter, self.strikes = LinkState.UP, generation, drafter, 0

    def down(self, *, barred: bool) -> set[int]:
        """Mark it as gone; the sessions that it had."""
        self.state = LinkState.BARRED if barred else LinkState.DOWN
        self.frame = pb.VerifierFrame()
        lost, self.sessions = self.sessions, set()
        return lost

    def strike(self, now_s: float, wait_s: float) -> None:
        self.strikes, self.struck_s, self.wait_s = self.strikes + 1, now_s, wait_s

    def record_response(self, took_s: float | None) -> None:
        if took_s is not None:
            self.lateness.record(1e3 * took_s)

    def send(self) -> bool:
        """Hand the gathered frame to the event loop; False when there is nothing to send."""
        if not (self.frame.opens or self.frame.commits or self.frame.closes):
            return False
        self.loop.call_soon_threadsafe(self.link.enqueue, self.generation, self.frame)
        self.frame = pb.VerifierFrame()
        return True

    def stop(self) -> None:
        self.running.cancel()

    def status(self, *, silent: bool) -> LinkStatus:
        return LinkStatus(
            address=self.address,
            state=self.state,
            drafter_id=self.drafter.drafter_id if self.drafter else "",
            incarnation=self.drafter.incarnation if self.drafter else 0,
            sessions=len(self.sessions),
            silent=silent,
            response_ms=self.lateness.mean_ms,
        )
