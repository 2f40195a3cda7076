"""Rank 0's side of a group: it starts the others, tells them every step, and notices when one is gone.

Whatever goes wrong in a step, on any rank, ends the group for good: the ranks no longer agree about where they are. A
replica whose group has failed refuses everything and is replaced.
"""

import atexit
import itertools
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from workers.attention.forward_context import Slots
from workers.core.config import ModelConfig
from workers.core.errors import OutriderError, UnavailableError
from workers.parallel.group import RankGroup, Seat, listen_for_ranks
from workers.parallel.launcher import RankLauncher, RankProcess, RankSpec
from workers.parallel.messages import Allocate, Forward, Message, Move, Ping, Stop, pack

__all__ = ["GroupCounters", "GroupLeader"]

logger = logging.getLogger(__name__)

BEATS = 3  # heartbeats in the time that ranks may be silent
LONGEST_BEAT_S = 5.0
EXPLANATION_S = 1.0
END_S = 5.0  # given to ranks that are told to stop


@dataclass
class GroupCounters:
    """Since the start. Never pre-divided. Heartbeats are not counted."""

    messages: int = 0
    bytes: int = 0  # broadcast to each rank


class GroupLeader:
    """The ranks 1..N-1 and the way to them. One step at a time; the heartbeat runs in a thread of its own."""

    def __init__(self, config: ModelConfig, launcher: RankLauncher) -> None:
        """Start the ranks and return when all have come; they load their shards while the caller loads its own."""
        self.counters = GroupCounters()
        self._lock = threading.Lock()
        self._failure: UnavailableError | None = None
        self._closing = threading.Event()
        self._moves: list[Move] = []
        self._released: list[int] = []
        self._gone: set[int] = set()
        self._numbers = itertools.count()
        self._last = time.monotonic()
        self._beat_s = min(LONGEST_BEAT_S, config.rank_timeout_s / BEATS)
        self._beats: threading.Thread | None = None
        self._ranks: list[RankProcess] = []
        size, listener = config.tensor_parallel_size, listen_for_ranks(launcher.host)
        seat = Seat(0, size, launcher.host, listener.getsockname()[1])
        device = launcher.device_of(0, config.device)
        try:
            for rank in range(1, size):
                own = config.model_copy(update={"device": launcher.device_of(rank, config.device)})
                self._ranks.append(launcher.start(RankSpec(replace(seat, rank=rank), own), self._on_end))
            self.group = RankGroup(seat, torch.device(device), config.rank_timeout_s, listener, self.check_health)
        except BaseException:
            self.kill()
            raise
        atexit.register(self.kill)  # for programs that end without `close`

    def serve(self) -> None:
        """Loading is over: from now on silence is a failure, also while there is no work."""
        self.group.serve()
        self._last = time.monotonic()
        self._beats = threading.Thread(target=self._beat, name="rank-heartbeat", daemon=True)
        self._beats.start()

    def new_storage(self, num_slots: int) -> int:
        """Allocate a pool of that many slots on every rank; the number that `Forward` calls it."""
        number = next(self._numbers)
        released, self._released = tuple(self._released), []
        self.tell(Allocate(number, num_slots, released))
        return number

    def release_storage(self, number: int) -> None:
        """Nobody uses the pool any more; the ranks give it back with the next one that is allocated."""
        self._gone.add(number)
        self._released.append(number)

    def note_move(self, storage: int, sources: Slots, targets: Slots) -> None:
        """K/V was moved here; the others do the same before their next pass."""
        self._moves.append(Move(storage, sources, targets))

    def tell(self, message: Message) -> None:
        """Send something to which the ranks have no answer."""
        with self._step(message):
            pass

    @contextmanager
    def together(self, forward: Forward) -> Iterator[None]:
        """All ranks run `forward`; the block is this rank's part of it."""
        moves, self._moves = self._moves, []
        with self._step(replace(forward, moves=tuple(move for move in moves if move.storage not in self._gone))):
            yield

    def check_health(self) -> None:
        """Raise `UnavailableError` when the group has failed."""
        if self._failure is not None:
            raise UnavailableError(str(self._failure))

    def explain(self, error: Exception) -> Exception:
        """What to raise for an error of this rank while it loads: where another rank has ended, that is the reason."""
        if isinstance(error, OutriderError):
            return error
        deadline = time.monotonic() + EXPLANATION_S
        while self._failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._failure or error

    def close(self) -> None:
        """End all ranks."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._failure is None:
            try:
                with self._step(Stop()):
                    pass
                deadline = time.monotonic() + END_S
                for rank in self._ranks:
                    rank.wait(max(0.0, deadline - time.monotonic()))
            except OutriderError as error:
                logger.warning("the ranks could not be told to stop: %s", error)
        self.kill()
        self.group.close()

    def kill(self) -> None:
        """End the other ranks at once, whatever state they are in, and wait until they are gone."""
        atexit.unregister(self.kill)
        self._closing.set()
        self._kill_ranks()
        for rank in self._ranks:
            rank.wait(END_S)

    def _kill_ranks(self) -> None:
        for rank in self._ranks:
            rank.kill()

    @contextmanager
    def _step(self, message: Message) -> Iterator[None]:
        with self._lock:
            self.check_health()
            try:
                size = self.group.send(pack(message))
                yield
            except BaseException as error:
                raise self._fail(f"a step of the tensor-parallel group failed: {_first_line(error)}") from error
            self._last = time.monotonic()
            if not isinstance(message, Ping):
                self.counters.messages += 1
                self.counters.bytes += size

    def _beat(self) -> None:
        """While there is no work, ask the ranks whether they are there."""
        while not self._closing.wait(self._beat_s):
            if self._failure is not None:
                return
            if time.monotonic() - self._last < self._beat_s:
                continue
            try:
                with self._step(Ping()):
                    self.group.answer()
            except OutriderError:
                return  # `check_health` says so

    def _on_end(self, rank: int, words: str) -> None:
        if not self._closing.is_set():
            self._fail(f"rank {rank} of the tensor-parallel group has ended: {words}")

    def _fail(self, words: str) -> UnavailableError:
        """The first failure stays."""
        if self._failure is None:
            logger.error("%s", words)
            self._failure = UnavailableError(words)
            self._kill_ranks()  # they would wait for messages, or not even that
        return self._failure


def _first_line(error: BaseException) -> str:
    """What happened, without the source file in front that gloo names."""
    text = re.sub(r"^\[[^\]]*\] *", "", next(iter(str(error).splitlines()), ""))
    return text.split(". ")[0] or type(error).__name__
