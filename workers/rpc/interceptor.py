"""A server interceptor that turns exceptions of handlers into gRPC statuses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from workers.rpc.errors import error_metadata, to_status

__all__ = ["ErrorInterceptor"]

_Context = grpc.aio.ServicerContext[Any, Any]


async def _abort(context: _Context, error: Exception) -> None:
    code, details = to_status(error)
    await context.abort(code, details, error_metadata(details))


def _single(handler: Callable[[Any, _Context], Awaitable[Any]]) -> Callable[[Any, _Context], Awaitable[Any]]:
    async def guarded(request: Any, context: _Context) -> Any:
        try:
            return await handler(request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - every kind of failure needs a status
            return await _abort(context, error)

    return guarded


def _streaming(handler: Callable[[Any, _Context], AsyncIterator[Any]]) -> Callable[[Any, _Context], AsyncIterator[Any]]:
    async def guarded(request: Any, context: _Context) -> AsyncIterator[Any]:
        try:
            async for response in handler(request, context):
                yield response
        except grpc.aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - every kind of failure needs a status
            await _abort(context, error)

    return guarded


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Maps exceptions by `workers.rpc.errors`. Streaming handlers must be async generators."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        handler: Any = await continuation(handler_call_details)
        if handler is None:  # no such method: gRPC answers UNIMPLEMENTED
            return None  # type: ignore[return-value]  # the stubs do not know it
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(_streaming(handler.stream_stream), **codecs)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(_streaming(handler.unary_stream), **codecs)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(_single(handler.stream_unary), **codecs)
        return grpc.unary_unary_rpc_method_handler(_single(handler.unary_unary), **codecs)
