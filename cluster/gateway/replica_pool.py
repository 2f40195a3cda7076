"""Open connections to verifiers, and the choice among them."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import grpc
from outrider.v1 import verifier_pb2_grpc

from cluster.gateway.directory import ReplicaDirectory, ReplicaState
from cluster.gateway.selection import choose_verifier, rank_drafters
from workers.core.request import DrafterEndpoint
from workers.rpc.channels import RpcOptions, open_channel

__all__ = ["AvoidUntil", "ReplicaPool", "replica_key"]

POLL_S = 0.05

AvoidUntil = Mapping[tuple[str, int], float]  # replica key to the clock time before which it is not chosen


def replica_key(state: ReplicaState) -> tuple[str, int]:
    """A restarted process is another replica, even under the same id."""
    return state.record.replica_id, state.record.incarnation


class ReplicaPool:
    """Belongs to one event loop. Counts the answers that this gateway has running on each replica."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        options: RpcOptions | None = None,
    ) -> None:
        self.directory = directory
        self._clock = clock
        self._rng = rng
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._in_flight: Counter[str] = Counter()  # by replica id
        self._streams: Counter[str] = Counter()  # by address

    def candidates(self, avoid_until: AvoidUntil) -> list[ReplicaState]:
        """Live verifiers without those that are to be avoided now."""
        now = self._clock()
        return [one for one in self.directory.verifiers() if avoid_until.get(replica_key(one), now) <= now]

    async def verifier(
        self, avoid_until: AvoidUntil, wait_s: float, fingerprint: str | None = None
    ) -> ReplicaState | None:
        """The best verifier. Waits up to `wait_s` for one, then takes one to be avoided; None when there is none.

        `fingerprint`: only verifiers of this model will do; while a deployment is updated, two models are served.
        """
        give_up_at = self._clock() + wait_s
        while True:
            candidates = self.candidates({} if self._clock() >= give_up_at else avoid_until)
            fitting = [one for one in candidates if fingerprint in (None, one.record.model_fingerprint)]
            chosen = choose_verifier(fitting, self._in_flight, self._rng)
            if chosen is not None or self._clock() >= give_up_at:
                return chosen
            await asyncio.sleep(POLL_S)

    def drafters(self, tokenizer_hash: str, count: int) -> tuple[DrafterEndpoint, ...]:
        """The best drafters for one answer, best first; none is legal."""
        return rank_drafters(
            self.directory.drafters(), self._in_flight, self._rng, tokenizer_hash=tokenizer_hash, count=count
        )

    @contextmanager
    def occupied(self, verifier: ReplicaState, drafters: tuple[DrafterEndpoint, ...]) -> Iterator[None]:
        """Count an answer on its verifier and on its first drafter, which is the one that is used."""
        names = [verifier.record.replica_id, *(one.drafter_id for one in drafters[:1])]
        self._in_flight.update(names)
        self._streams[verifier.record.address] += 1
        try:
            yield
        finally:
            self._in_flight.subtract(names)
            self._in_flight = +self._in_flight  # drops zeros
            self._streams[verifier.record.address] -= 1

    @property
    def in_flight(self) -> Mapping[str, int]:
        """Answers of this gateway by replica id; replicas without any are absent."""
        return self._in_flight

    def stub(self, verifier: ReplicaState) -> "verifier_pb2_grpc.VerifierServiceAsyncStub":
        """Client of a verifier, over the one channel to its address."""
        address = verifier.record.address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, self._options)
        return verifier_pb2_grpc.VerifierServiceStub(channel)

    async def forget_gone(self) -> None:
        """Close channels to addresses where no verifier is announced any more; a draining one may still send to us."""
        announced = {one.record.address for one in self.directory.verifiers()}
        for address in [one for one in self._channels if one not in announced and not self._streams[one]]:
            del self._streams[address]
            await self._channels.pop(address).close(None)

    async def close(self) -> None:
        """Close all channels, which ends what still runs on them."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)
