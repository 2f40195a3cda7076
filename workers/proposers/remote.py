"""`RemoteProposer`: token trees from drafters over `DraftService.Speculate`.

All decisions are taken in the engine's thread, which calls every method here;
an event loop on a thread of its own only carries frames (`DraftLink`). What
arrives waits in an `Inbox` until the engine looks. A drafter may be late,
silent, hostile or dead: the request then goes on without it, and moves to the
next drafter of its list when that can help.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.v1 import draft_pb2 as pb

from workers.core.errors import ProtocolViolationError
from workers.core.private_log import private
from workers.core.proposal import Proposal
from workers.core.sampling_params import SpeculationMode
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.counters import LinkState, LinkStatus, ProposerCounters
from workers.proposers.draft_link import DraftLink, LinkOptions
from workers.proposers.draft_session import RemoteSession
from workers.proposers.inbox import Arrival, Inbox, LinkDown, LinkUp
from workers.proposers.peer import Peer
from workers.rpc.convert import commit_to_wire, opening_to_wire
from workers.rpc.handshake import VerifierIdentity
from workers.rpc.loop_thread import LoopThread

__all__ = ["RemoteOptions", "RemoteProposer"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteOptions:
    """When to give up on drafters."""

    max_strikes: int = 3  # waits in vain until a session is no longer waited for, or a drafter counts as silent
    max_unanswered: int = 16  # commits that a drafter may leave unanswered,
    unanswered_s: float = 5.0  # and how long, until a session is taken to another one
    avoided_s: float = 60.0  # that it left, before the session may come back to it
    idle_s: float = 60.0  # a drafter without sessions is disconnected after this
    over_capacity_s: float = 1.0  # before a drafter that was full is asked again for the same request
    patience_s: float = 1.0  # a drafter that is being connected for the first time is worth this delay
    link: LinkOptions = field(default_factory=LinkOptions)


class RemoteProposer:
    """A `Proposer` over remote drafters. One thread calls its methods; `counters` and `links` may be read by others."""

    in_process = False

    def __init__(
        self,
        hello: VerifierIdentity,
        clock: Callable[[], float] = time.monotonic,
        options: RemoteOptions | None = None,
    ) -> None:
        self.counters = ProposerCounters()
        self._hello = hello
        self._clock = clock
        self._options = options or RemoteOptions()
        self._inbox = Inbox()
        self._loop_thread = LoopThread("outrider-draft-links")
        self._peers: dict[str, Peer] = {}
        self._sessions: dict[int, RemoteSession] = {}
        self._unattached: dict[int, RemoteSession] = {}

    # The Proposer interface

    def open(self, session: DraftSession) -> None:
        request = session.request
        if request.mode is SpeculationMode.OFF or request.budget.max_nodes == 0 or not request.drafters:
            return
        remote = RemoteSession.start(session, self.counters)
        self._sessions[session.key] = self._unattached[session.key] = remote

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            session = self._sessions.get(update.key)
            if session is None:
                continue
            message = session.commit(update)
            if message is not None and session.address is not None:
                self._peers[session.address].frame.commits.append(commit_to_wire(message))

    def close(self, key: int) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._detach(session, tell=True)
            self._unattached.pop(key, None)

    def flush(self) -> None:
        self._read_inbox()
        now = self._clock()
        self._strike_again(now)
        self._leave_silent_drafters(now)
        self._attach_sessions()
        for peer in list(self._peers.values()):
            told = [m.session_id for m in peer.frame.opens] + [m.session_id for m in peer.frame.commits]
            if peer.send() or peer.sessions:
                peer.last_used_s = now
            elif now - peer.last_used_s > self._options.idle_s:
                peer.stop()
                del self._peers[peer.address]
            for session in filter(None, map(self._sessions.get, told)):
                session.told_at(now)

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        started_s = self._clock()
        for session in filter(None, map(self._sessions.get, wants)):
            session.last_timeout_s = timeout_s
        while True:
            self._read_inbox()
            missing = [s for key, want in wants.items() if (s := self._missing(key, want)) is not None]
            if not missing:
                return
            remaining_s = timeout_s - (self._clock() - started_s)
            if remaining_s <= 0 or not self._inbox.wait(remaining_s):
                if timeout_s > 0:
                    self._strike(missing, timeout_s)
                return

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        self._read_inbox()
        found: dict[int, Proposal] = {}
        for key, want in wants.items():
            session = self._sessions.get(key)
            proposal = session.take(want) if session is not None and want.budget.max_nodes else None
            if proposal is not None:
                found[key] = proposal
        return found

    def shutdown(self) -> None:
        for peer in self._peers.values():
            peer.stop()
        self._peers.clear()
        self._sessions.clear()
        self._unattached.clear()
        self._loop_thread.stop()

    # Beyond the interface

    def due(self, wants: Mapping[int, Want]) -> dict[int, tuple[float | None, float]]:
        """See `ReportsArrivals`."""
        self._read_inbox()
        now, found = self._clock(), dict[int, tuple[float | None, float]]()
        for key, want in wants.items():
            session = self._missing(key, want)
            if session is not None and session.address is not None:
                lateness = self._peers[session.address].lateness
                waited_ms = (now - session.sent_at[-1][1]) * 1e3
                found[key] = lateness.due_ms(waited_ms), lateness.deviation_ms
        return found

    def connect(self, addresses: Iterable[str], timeout_s: float = 0.0) -> bool:
        """Open streams ahead of the first request; whether all of them are up after at most `timeout_s`."""
        deadline_s = self._clock() + timeout_s
        peers = [self._peer(address) for address in addresses]
        while True:
            self._read_inbox()
            if all(peer.state is LinkState.UP for peer in peers):
                return True
            remaining_s = deadline_s - self._clock()
            if remaining_s <= 0:
                return False
            self._inbox.wait(remaining_s)

    def links(self) -> tuple[LinkStatus, ...]:
        """The drafters that it is, or was lately, connected to."""
        return tuple(peer.status(silent=self._silent(peer)) for peer in list(self._peers.values()))

    # Drafters and sessions

    def _peer(self, address: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            link = DraftLink(address, self._hello, self._inbox, self._clock, self._options.link)
            loop = self._loop_thread.loop
            running = asyncio.run_coroutine_threadsafe(link.run(), loop)
            now = self._clock()
            peer = self._peers[address] = Peer(link, loop, running, created_s=now, last_used_s=now)
        return peer

    def _silent(self, peer: Peer) -> bool:
        return peer.strikes >= self._options.max_strikes

    def _choose(self, session: RemoteSession, besides: str | None = None) -> Peer | None:
        """The best drafter that can take the session now, silent ones last; not the one at `besides`."""
        now, num_tokens = self._clock(), len(session.tokens)
        silent: Peer | None = None
        for endpoint in session.request.drafters:
            if endpoint.address == besides or session.barred_until.get(endpoint.address, now) > now:
                continue
            peer = self._peer(endpoint.address)
            if peer.state is LinkState.CONNECTING and now - peer.created_s < self._options.patience_s:
                return None  # most likely up in a moment, and the better choice
            if not peer.room_for(num_tokens):
                continue
            if not self._silent(peer):
                return peer
            silent = silent or peer
        return silent

    def _attach_sessions(self) -> None:
        for session in list(self._unattached.values()):
            peer = None if session.paused else self._choose(session)
            if peer is None or peer.drafter is None:
                continue
            opening = session.attach(peer.address, peer.drafter.incarnation)
            peer.frame.opens.append(opening_to_wire(opening))
            peer.sessions.add(session.key)
            del self._unattached[session.key]

    def _detach(self, session: RemoteSession, *, tell: bool) -> None:
        """Take a session from its drafter; `tell`: the drafter still has it."""
        peer = None if session.address is None else self._peers[session.address]
        session.detach()
        self._unattached[session.key] = session
        if peer is not None:
            peer.sessions.discard(session.key)
            if tell:
                peer.frame.closes.append(pb.CloseSession(session_id=session.key, epoch=session.epoch))

    def _leave_silent_drafters(self, now_s: float) -> None:
        """Sessions that their drafter does not answer, be it none of its sessions or only this one, move when there is
        a better one. Otherwise they stay and are not waited for.
        """
        for session in self._sessions.values():
            if session.address is None:
                continue
            peer = self._peers[session.address]
            ignored = self._ignored(session, now_s)
            if not ignored and not self._silent(peer):
                continue
            better = self._choose(session, besides=peer.address)
            if better is not None and not self._silent(better):
                _log.info("drafter %s does not answer, request %s leaves it", peer.address, session.key)
                if ignored:
                    session.bar(peer.address, now_s + self._options.avoided_s)
                self._detach(session, tell=True)

    def _ignored(self, session: RemoteSession, now_s: float) -> bool:
        """Many commits and a long time without a word: one that reads a long prompt, or is slow, is not given up."""
        since_s = session.unanswered_since_s
        waited = since_s is not None and now_s - since_s >= self._options.unanswered_s
        return waited and session.unanswered >= self._options.max_unanswered

    # Waiting

    def _missing(self, key: int, want: Want) -> RemoteSession | None:
        """The session, if a proposal for `want` is still to come and worth waiting for."""
        session = self._sessions.get(key)
        if session is None or session.address is None or session.paused or want.budget.max_nodes == 0:
            return None
        patient = session.strikes < self._options.max_strikes and not self._peers[session.address].strikes
        return session if session.told(want) and patient and not session.has(want) else None

    def _strike(self, missing: Iterable[RemoteSession], wait_s: float) -> None:
        """Until it is heard of again, a drafter has no step wait for it a second time."""
        for session in missing:
            session.strikes += 1
        for peer in {self._peers[session.address] for session in missing if session.address is not None}:
            peer.strike(self._clock(), wait_s)

    def _strike_again(self, now_s: float) -> None:
        for peer in self._peers.values():
            owes = any(self._sessions[key].awaiting for key in peer.sessions)
            if peer.strikes and owes and not self._silent(peer) and now_s - peer.struck_s >= peer.wait_s:
                peer.strike(now_s, peer.wait_s)
                if self._silent(peer):
                    self.counters.silences += 1
                    _log.warning("drafter %s is silent, its requests leave it when there is another", peer.address)

    # What arrived

    def _read_inbox(self) -> None:
        events, arrivals = self._inbox.take()
        for event in events:
            peer = self._peers.get(event.address)
            if peer is None or peer.link is not event.link:
                continue
            if isinstance(event, LinkUp):
                self.counters.streams += 1
                peer.up(event.generation, event.drafter)
            else:
                self._lose(peer, event)
        for arrival in arrivals:
            self._receive(arrival)

    def _lose(self, peer: Peer, event: LinkDown) -> None:
        self.counters.stream_failures += 1
        self.counters.incompatible += event.incompatible
        for session in [self._sessions[key] for key in peer.down(barred=event.barred)]:
            self.counters.lost += session.awaiting
            self._detach(session, tell=False)

    def _receive(self, arrival: Arrival) -> None:
        message, peer = arrival.message, self._peers.get(arrival.address)
        current = peer is not None and peer.link is arrival.link and peer.generation == arrival.generation
        if peer is None or not current or peer.state is not LinkState.UP:
            self.counters.outdated += 1
            return
        session = self._sessions.get(message.session_id)
        if session is None or session.address != arrival.address or session.epoch != message.epoch:
            self.counters.outdated += 1
        elif isinstance(message, pb.SessionError):
            self._session_error(session, peer, message)
        else:
            self._proposal(session, peer, message, arrival.arrived_s)

    def _proposal(self, session: RemoteSession, peer: Peer, message: pb.Proposal, arrived_s: float) -> None:
        try:
            peer.record_response(session.receive(message, arrived_s, self._hello.vocab_size))
            peer.strikes = 0
        except ProtocolViolationError as error:
            self.counters.invalid += 1
            session.stats.invalid_proposals += 1
            _log.error(
                "drafter %s broke the protocol, request %s leaves it: %s", peer.address, session.key, private(error)
            )
            session.bar(peer.address)
            self._detach(session, tell=True)

    def _session_error(self, session: RemoteSession, peer: Peer, message: pb.SessionError) -> None:
        self.counters.session_errors += 1
        self.counters.lost += session.awaiting
        code, words = pb.SessionErrorCode.Name(message.code), private(message.message)
        _log.info("drafter %s gave up request %s: %s: %s", peer.address, session.key, code, words)
        temporary = message.code in (
            pb.SESSION_ERROR_CODE_OVER_CAPACITY,
            pb.SESSION_ERROR_CODE_UNKNOWN_SESSION,
            pb.SESSION_ERROR_CODE_STALE_EPOCH,
        )
        if temporary:
            session.bar(peer.address, self._clock() + self._options.over_capacity_s)
        else:
            session.bar(peer.address)
        self._detach(session, tell=False)
