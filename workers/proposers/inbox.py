"""What arrives from drafters, between the thread of the event loop and the engine's.

Bounded: of each session only the newest proposal and error are kept, and a
drafter that sends more than `max_unread` messages which nobody has read yet is
flooding.
"""

import threading
from dataclasses import dataclass

from outrider.v1 import draft_pb2 as pb

from workers.rpc.handshake import DrafterIdentity

__all__ = ["Arrival", "Inbox", "LinkDown", "LinkUp"]


@dataclass(frozen=True)
class LinkUp:
    """A stream of `link` has been welcomed. `generation` numbers the streams of one link."""

    link: object
    address: str
    generation: int
    drafter: DrafterIdentity


@dataclass(frozen=True)
class LinkDown:
    """A stream ended or could not be opened; `barred`: the peer is at fault and will not be tried again soon."""

    link: object
    address: str
    generation: int
    reason: str
    barred: bool
    incompatible: bool = False


@dataclass(frozen=True)
class Arrival:
    """A proposal or an error of one session."""

    link: object
    address: str
    generation: int
    arrived_s: float
    message: pb.Proposal | pb.SessionError


class Inbox:
    """`post` and `deliver` are for the loop's thread, `take` and `wait` for the engine's."""

    def __init__(self, max_unread: int = 4096) -> None:
        self._changed = threading.Condition()
        self._events: list[LinkUp | LinkDown] = []
        self._arrivals: dict[tuple[str, int, bool], Arrival] = {}
        self._unread: dict[str, int] = {}
        self._max_unread = max_unread

    def post(self, event: LinkUp | LinkDown) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify()

    def deliver(self, link: object, address: str, generation: int, arrived_s: float, frame: pb.DrafterFrame) -> bool:
        """Take in a frame; False when the drafter is flooding (the rest of the frame is dropped)."""
        with self._changed:
            unread = self._unread.get(address, 0) + len(frame.proposals) + len(frame.errors)
            self._unread[address] = unread
            if unread > self._max_unread:
                return False
            for proposal in frame.proposals:
                key = (address, proposal.session_id, False)
                self._arrivals[key] = Arrival(link, address, generation, arrived_s, proposal)
            for error in frame.errors:
                self._arrivals[(address, error.session_id, True)] = Arrival(link, address, generation, arrived_s, error)
            self._changed.notify()
            return True

    def take(self) -> tuple[list[LinkUp | LinkDown], list[Arrival]]:
        """Everything that came since the last call; events are older than or as old as the arrivals after them."""
        with self._changed:
            if not self._events and not self._unread:
                return [], []
            taken = self._events, list(self._arrivals.values())
            self._events, self._arrivals, self._unread = [], {}, {}
            return taken

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as `take` would return something, False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._events or self._arrivals), timeout_s)
