"""Both pools as a gateway uses them: who runs an answer, who drafts for it, and the connections to them."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import grpc
from outrider.v1 import draft_pb2_grpc, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb

from cluster.config.routing import PoolRouting, RoutingConfig
from cluster.gateway.channels import Channels
from cluster.router.decision import Choice, Decision, PoolName, RoutedRequest
from cluster.router.decision_log import DecisionLog
from cluster.router.directory import ReplicaDirectory
from cluster.router.kv_follower import KvFollower
from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.policies.registry import build_policy
from cluster.router.pool import RoutingPool
from cluster.router.replica_table import ReplicaKey, key_of
from workers.rpc.channels import RpcOptions

__all__ = ["AvoidUntil", "ReplicaPool"]

POLL_S = 0.05

AvoidUntil = Mapping[ReplicaKey, float]  # clock time before which a replica is not chosen


class ReplicaPool:
    """Belongs to one event loop."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        routing: RoutingConfig,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        options: RpcOptions | None = None,
        routed: Callable[[Decision], None] = lambda decision: None,
    ) -> None:
        """Raises `ConfigurationError` for a routing policy that cannot be had. `routed` hears of each choice."""
        self.directory = directory
        self.decisions = DecisionLog(routing.max_explained)
        self._clock = clock
        self._draw = rng.random
        self._routed = routed
        self._channels = Channels(options)

        def pool(name: PoolName, config: PoolRouting) -> RoutingPool:
            policy = build_policy(config)
            sessions = routing.max_sessions
            return RoutingPool(name, config, policy, max_sessions=sessions, clock=clock, draw=rng.random)

        self._verifiers = pool("verifier", routing.verifiers)
        self._drafters = pool("drafter", routing.drafters)
        self._verifier_events = KvFollower(self._verifiers, self._verifier_stream)
        self._drafter_events = KvFollower(self._drafters, self._drafter_stream)

    def refresh(self) -> None:
        """Take notice of replicas that came and went. Cheap; done before every choice, and by whoever likes to."""
        self._verifier_events.update(self.directory.verifiers())
        self._drafter_events.update(self.directory.drafters())

    def candidates(self, avoid_until: AvoidUntil) -> list[ReplicaRecord]:
        """Live verifiers without those that are to be avoided now."""
        now = self._clock()
        return [one for one in self.directory.verifiers() if avoid_until.get(key_of(one), now) <= now]

    async def verifier(
        self, request: RoutedRequest, avoid_until: AvoidUntil, wait_s: float, fingerprint: str | None = None
    ) -> ReplicaRecord | None:
        """The best verifier, to be `occupied` next; None when there is none.

        Waits up to `wait_s` for one, then takes one that is to be avoided.

        `fingerprint`: only verifiers of this model will do; while a deployment is updated, two models are served.
        """
        give_up_at = self._clock() + wait_s
        while True:
            self.refresh()
            now = self._clock()
            last_try = now >= give_up_at

            def usable(record: ReplicaRecord, now: float = now, last_try: bool = last_try) -> bool:
                avoided = not last_try and avoid_until.get(key_of(record), now) > now
                return not avoided and fingerprint in (None, record.model_fingerprint)

            choice = self._verifiers.choose(request, usable)
            if choice is not None:
                self._note(self._verifiers, request, choice)
                return choice.records[0]
            if last_try:
                return None
            await asyncio.sleep(POLL_S)

    async def any_verifier(self, wait_s: float, silent: Collection[ReplicaKey] = ()) -> ReplicaRecord | None:
        """Some live verifier, to be asked about the model; None when there is none after `wait_s`.

        `silent`: those that did not answer are asked again only when there is no other.
        """
        give_up_at = self._clock() + wait_s
        while not (verifiers := self.directory.verifiers()) and self._clock() < give_up_at:
            await asyncio.sleep(POLL_S)
        verifiers = [one for one in verifiers if key_of(one) not in silent] or verifiers
        return verifiers[int(self._draw() * len(verifiers))] if verifiers else None

    @contextmanager
    def drafters(self, request: RoutedRequest, tokenizer_hash: str, count: int) -> Iterator[tuple[ReplicaRecord, ...]]:
        """The best drafters for one answer, best first, as long as it runs; none is legal. The first one is used."""
        self.refresh()
        choice = self._drafters.choose(request, lambda record: record.tokenizer_hash == tokenizer_hash, count)
        if choice is None:
            yield ()
            return
        self._note(self._drafters, request, choice)
        try:
            yield choice.records
        finally:
            self._drafters.release(choice.records[0])

    def connected(self, verifier: ReplicaRecord) -> AbstractContextManager[None]:
        """Keeps the connection to a verifier, announced or not, as long as this lasts."""
        return self._channels.in_use(verifier.address)

    @contextmanager
    def occupied(self, verifier: ReplicaRecord) -> Iterator[None]:
        """As long as the answer runs on the verifier that was chosen for it."""
        try:
            with self.connected(verifier):
                yield
        finally:
            self._verifiers.release(verifier)

    def _note(self, pool: RoutingPool, request: RoutedRequest, choice: Choice) -> None:
        """Tell of a choice, which is taken back when that fails."""
        try:
            self.decisions.record(request.request_id, choice.decision)
            self._routed(choice.decision)
        except BaseException:
            pool.release(choice.records[0])
            raise

    def load(self, record: ReplicaRecord) -> ReplicaLoad:
        """As it was reported last; zeros while nothing was."""
        pool = self._verifiers if record.role == "verifier" else self._drafters
        return pool.load(key_of(record))

    def explain(self, request_id: str) -> list[Decision]:
        """Choices of this gateway for the request, in order of time; [] when it has none."""
        return self.decisions.of(request_id)

    def stub(self, verifier: ReplicaRecord) -> "verifier_pb2_grpc.VerifierServiceAsyncStub":
        """Client of a verifier, over the one channel to its address."""
        return verifier_pb2_grpc.VerifierServiceStub(self._channels.to(verifier.address))

    async def forget_gone(self) -> None:
        """Close connections to replicas that are not announced any more."""
        announced = (*self.directory.verifiers(), *self.directory.drafters())
        await self._channels.keep({one.address for one in announced})

    async def close(self) -> None:
        """Follow nobody, close all connections, which ends what still runs on them."""
        await self._verifier_events.close()
        await self._drafter_events.close()
        await self._channels.close()

    def _verifier_stream(
        self, record: ReplicaRecord, request: pb.KvEventsRequest
    ) -> "grpc.aio.UnaryStreamCall[pb.KvEventsRequest, pb.KvEventsResponse]":
        return self.stub(record).KvEvents(request)

    def _drafter_stream(
        self, record: ReplicaRecord, request: pb.KvEventsRequest
    ) -> "grpc.aio.UnaryStreamCall[pb.KvEventsRequest, pb.KvEventsResponse]":
        stub: draft_pb2_grpc.DraftServiceAsyncStub = draft_pb2_grpc.DraftServiceStub(self._channels.to(record.address))
        return stub.KvEvents(request)
