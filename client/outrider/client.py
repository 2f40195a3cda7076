"""The synchronous client. `outrider.aio` is its twin; what they share is in `outrider.client_core`."""

import time
from collections.abc import Callable, Generator
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from outrider import wire
from outrider.channels import DEFAULT_MAX_MESSAGE_BYTES, ChannelPool
from outrider.client_core import DEFAULT_SILENCE_TIMEOUT_S, Cancellation, ClientCore, Metadata, StreamCore
from outrider.errors import OutriderError
from outrider.failure import ENDED_EARLY, Failure
from outrider.generation_call import GenerationCall
from outrider.options import Messages, RequestOptions
from outrider.results import Delta, Generation, ModelInfo, RoutingDecision, ServerInfo, TokenCount
from outrider.retry import RetryPolicy
from outrider.silence import SilenceWatcher, silent_for
from outrider.v1 import generation_pb2
from outrider.v1.generation_pb2_grpc import GenerationServiceStub

__all__ = ["Client", "Stream"]

Pool = ChannelPool[grpc.Channel, GenerationServiceStub]
T = TypeVar("T")


class Client:
    """Talks to one Outrider server. Thread-safe; use it as a context manager or call `close`.

    Args:
        target: Address of the server: host:port, [ipv6]:port, or with a scheme of gRPC's, such as unix:/path.
        timeout: Seconds that a call may take with all its retries; None = no limit.
        silence_timeout: Seconds without a sign of life after which a stream is given up and resumed on a new
            connection; None = never. Servers send one more often than that, also while a request waits.
        retry: When to try again and to resume.
        channel_credentials: TLS; None = an unencrypted connection.
        api_key: Sent as `authorization: Bearer KEY`; None = the environment's OUTRIDER_API_KEY, "" = no key.
        metadata: Further headers of every call.
        max_message_bytes: Largest message in either direction.
        max_connections: A connection carries 100 streams at once; more are opened as needed, up to this many.
        clock, sleep, random: For tests; seconds from an arbitrary start, waiting, and randomness.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None = None,
        silence_timeout: float | None = DEFAULT_SILENCE_TIMEOUT_S,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  # frozen
        channel_credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        metadata: Metadata = (),
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        max_connections: int = 8,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self._core = ClientCore(
            target,
            timeout=timeout,
            silence_timeout=silence_timeout,
            retry=retry,
            api_key=api_key,
            metadata=metadata,
            max_message_bytes=max_message_bytes,
            clock=clock,
            random=random,
        )
        self._credentials = channel_credentials
        self._sleep = sleep
        self._pool = Pool(
            self._open_channel,
            GenerationServiceStub,
            max_connections=max_connections,
            discard=lambda channel: channel.close(),
        )
        self._watcher = SilenceWatcher(self._core.silence_period_s)

    def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Generation:
        """Generate and wait for the whole answer.

        Give one of `prompt` (plain text), `messages` (a conversation) or `token_ids`; the other options are those of
        `RequestOptions`: `sampling` or its fields, `speculation`, `cache_salt`, `session_id`, `deadline`, ....

        Raises:
            OutriderError: One of its subclasses; `error.partial` holds what had arrived.
        """
        return self.stream(prompt, **options).result()

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> "Stream":
        """Generate and read the answer while it grows. Takes what `generate` takes; sent on the first read."""
        return Stream(self._core.generation(prompt, options), self._core, self._pool, self._sleep, self._watcher)

    def count_tokens(self, prompt: str | None = None, *, messages: Messages | None = None) -> TokenCount:
        """Count the tokens of a prompt as the model would see it."""
        request = wire.count_request(prompt, messages)
        return wire.token_count(self._unary(lambda stub, **limits: stub.CountTokens(request, **limits)))

    def model_info(self) -> ModelInfo:
        """The model that is served and its limits."""
        request = generation_pb2.GetModelInfoRequest()
        return wire.model_info(self._unary(lambda stub, **limits: stub.GetModelInfo(request, **limits)))

    def server_info(self) -> ServerInfo:
        """The server's version and the replicas of its pools."""
        request = generation_pb2.GetServerInfoRequest()
        return wire.server_info(self._unary(lambda stub, **limits: stub.GetServerInfo(request, **limits)))

    def explain_routing(self, request_id: str) -> tuple[RoutingDecision, ...]:
        """Why a recent request went where it went, in order of time; `NotFoundError` when it is too long ago."""
        request = generation_pb2.ExplainRoutingRequest(request_id=request_id)
        return wire.routing_decisions(self._unary(lambda stub, **limits: stub.ExplainRouting(request, **limits)))

    def close(self) -> None:
        """Close all connections; running calls end with `CancelledError`."""
        for channel in self._pool.close():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_channel(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._core.target, self._core.channel_options)
        return grpc.secure_channel(self._core.target, self._credentials, self._core.channel_options)

    def _unary(self, send: Callable[..., T]) -> T:
        attempts = self._core.attempts()
        while True:
            timeout_s = attempts.begin()
            try:
                with self._pool.lease() as stub:
                    return send(stub, timeout=timeout_s, metadata=self._core.metadata)
            except grpc.RpcError as error:
                failure = Failure.of(error)
            self._pool.check_open()
            self._sleep(attempts.delay_after(failure, progressed=False))


class Stream(StreamCore):
    """An iterator of `Delta`; `result` returns the whole answer. One reader at a time.

    Leaving it as a context manager cancels what is still running.
    """

    def __init__(
        self,
        call: GenerationCall,
        core: ClientCore,
        pool: Pool,
        sleep: Callable[[float], object],
        watcher: SilenceWatcher,
    ) -> None:
        super().__init__(call)
        self._deltas = _read(call, core, pool, sleep, self._cancellation, watcher)

    def result(self) -> Generation:
        """Read to the end and return the whole answer."""
        for _ in self:
            pass
        return self._call.snapshot()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        self._check_readable()
        try:
            return next(self._deltas)
        except OutriderError as error:
            self._fail(error)
            raise
        except StopIteration:
            self._check_complete()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._call.complete:
            self.cancel()
        self._deltas.close()


def _read(
    call: GenerationCall,
    core: ClientCore,
    pool: Pool,
    sleep: Callable[[float], object],
    cancellation: Cancellation,
    watcher: SilenceWatcher,
) -> Generator[Delta, None, None]:
    """Run attempts until every answer is there; ends the running RPC when it is closed."""
    while not call.complete:
        cancellation.check()
        request, timeout_s = call.begin_attempt()
        failure = ENDED_EARLY
        with pool.lease() as stub:
            rpc: Any = stub.Generate(request, timeout=timeout_s, metadata=core.metadata)
            try:
                cancellation.attach(rpc)
                with watcher.watch(rpc) as watch:
                    watch.waiting(call.silence_limit_s)
                    for response in rpc:
                        watch.received()
                        delta = call.receive(response)
                        if delta is not None:
                            yield delta
                        watch.waiting(call.silence_limit_s)
            except grpc.RpcError as error:
                failure = Failure.of(error)
                if watch.expired:
                    failure = silent_for(call.silence_limit_s)
                    pool.retire(stub)
            finally:
                rpc.cancel()  # does nothing to an RPC that has ended
        if not call.complete:
            cancellation.check()
            pool.check_open()
            sleep(call.delay_after(failure))
