"""The asynchronous client: the surface of `outrider.client` with coroutines and async iterators."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import grpc
import grpc.aio

from outrider import wire
from outrider.channels import DEFAULT_MAX_MESSAGE_BYTES, ChannelPool
from outrider.client_core import DEFAULT_SILENCE_TIMEOUT_S, Cancellation, ClientCore, Metadata, StreamCore
from outrider.errors import OutriderError
from outrider.failure import ENDED_EARLY, Failure
from outrider.generation_call import GenerationCall
from outrider.options import Messages, RequestOptions
from outrider.results import Delta, Generation, ModelInfo, RoutingDecision, ServerInfo, TokenCount
from outrider.retry import RetryPolicy
from outrider.silence import silent_for
from outrider.v1 import generation_pb2
from outrider.v1.generation_pb2_grpc import GenerationServiceStub

if TYPE_CHECKING:
    from outrider.v1.generation_pb2_grpc import GenerationServiceAsyncStub

    AsyncPool = ChannelPool[grpc.aio.Channel, GenerationServiceAsyncStub]

__all__ = ["AsyncClient", "AsyncStream"]

T = TypeVar("T")


class AsyncClient:
    """As `outrider.Client`, for one event loop. Connections open on first use.

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
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
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
        self._pool: AsyncPool = ChannelPool(
            self._open_channel, GenerationServiceStub, max_connections=max_connections, discard=self._discard
        )
        self._closing: set[asyncio.Task[None]] = set()

    async def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Generation:
        """Generate and wait for the whole answer; see `Client.generate`."""
        return await self.stream(prompt, **options).result()

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> "AsyncStream":
        """Generate and read the answer while it grows; see `Client.stream`. Not a coroutine."""
        return AsyncStream(self._core.generation(prompt, options), self._core, self._pool, self._sleep)

    async def count_tokens(self, prompt: str | None = None, *, messages: Messages | None = None) -> TokenCount:
        """Count the tokens of a prompt as the model would see it."""
        request = wire.count_request(prompt, messages)
        return wire.token_count(await self._unary(lambda stub, **limits: stub.CountTokens(request, **limits)))

    async def model_info(self) -> ModelInfo:
        """The model that is served and its limits."""
        request = generation_pb2.GetModelInfoRequest()
        return wire.model_info(await self._unary(lambda stub, **limits: stub.GetModelInfo(request, **limits)))

    async def server_info(self) -> ServerInfo:
        """The server's version and the replicas of its pools."""
        request = generation_pb2.GetServerInfoRequest()
        return wire.server_info(await self._unary(lambda stub, **limits: stub.GetServerInfo(request, **limits)))

    async def explain_routing(self, request_id: str) -> tuple[RoutingDecision, ...]:
        """Why a recent request went where it went, in order of time; `NotFoundError` when it is too long ago."""
        request = generation_pb2.ExplainRoutingRequest(request_id=request_id)
        return wire.routing_decisions(await self._unary(lambda stub, **limits: stub.ExplainRouting(request, **limits)))

    async def close(self) -> None:
        """Close all connections; running calls end with `CancelledError`."""
        for channel in self._pool.close():
            await channel.close(None)
        await asyncio.gather(*self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open_channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._core.target, self._core.channel_options)
        return grpc.aio.secure_channel(self._core.target, self._credentials, self._core.channel_options)

    def _discard(self, channel: grpc.aio.Channel) -> None:
        closing = asyncio.create_task(channel.close(None))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _unary(self, send: Callable[..., Awaitable[T]]) -> T:
        attempts = self._core.attempts()
        while True:
            timeout_s = attempts.begin()
            try:
                with self._pool.lease() as stub:
                    return await send(stub, timeout=timeout_s, metadata=self._core.metadata)
            except (grpc.RpcError, asyncio.CancelledError) as error:
                failure = _failure_of(error)
            self._pool.check_open()
            await self._sleep(attempts.delay_after(failure, progressed=False))


class AsyncStream(StreamCore):
    """An async iterator of `Delta`; `result` returns the whole answer. One reader at a time.

    Leaving it as an async context manager cancels what is still running.
    """

    def __init__(
        self,
        call: GenerationCall,
        core: ClientCore,
        pool: "AsyncPool",
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        super().__init__(call)
        self._deltas = _read(call, core, pool, sleep, self._cancellation)

    async def result(self) -> Generation:
        """Read to the end and return the whole answer."""
        async for _ in self:
            pass
        return self._call.snapshot()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        self._check_readable()
        try:
            return await anext(self._deltas)
        except OutriderError as error:
            self._fail(error)
            raise
        except StopAsyncIteration:
            self._check_complete()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._call.complete:
            self.cancel()
        await self._deltas.aclose()


async def _read(
    call: GenerationCall,
    core: ClientCore,
    pool: "AsyncPool",
    sleep: Callable[[float], Awaitable[object]],
    cancellation: Cancellation,
) -> AsyncGenerator[Delta, None]:
    """Run attempts until every answer is there; ends the running RPC when it is closed."""
    while not call.complete:
        cancellation.check()
        request, timeout_s = call.begin_attempt()
        failure = ENDED_EARLY
        with pool.lease() as stub:
            rpc = stub.Generate(request, timeout=timeout_s, metadata=core.metadata)
            try:
                cancellation.attach(rpc)
                responses = aiter(rpc)
                while True:
                    async with asyncio.timeout(call.silence_limit_s):
                        response = await anext(responses, None)
                    if response is None:
                        break
                    delta = call.receive(response)
                    if delta is not None:
                        yield delta
            except (grpc.RpcError, asyncio.CancelledError) as error:
                failure = _failure_of(error)
            except TimeoutError:
                failure = silent_for(call.silence_limit_s)
                pool.retire(stub)
            finally:
                rpc.cancel()  # does nothing to an RPC that has ended
        if not call.complete:
            cancellation.check()
            pool.check_open()
            await sleep(call.delay_after(failure))


def _failure_of(error: grpc.RpcError | asyncio.CancelledError) -> Failure:
    """How an attempt ended; raises `error` again when it is the reading task that is being cancelled.

    grpc.aio raises `asyncio.CancelledError` also when not the task but the RPC was cancelled: by `cancel` from another
    task, or by closing the client. The caller tells these two apart.
    """
    if isinstance(error, grpc.RpcError):
        return Failure.of(error)
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    return Failure(grpc.StatusCode.CANCELLED, "the RPC was cancelled")
