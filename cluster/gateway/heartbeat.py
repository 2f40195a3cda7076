"""Signs of life in a stream that has nothing else to send, so that its reader can tell waiting from hanging."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from outrider.v1 import generation_pb2 as pb

__all__ = ["with_heartbeats"]


async def with_heartbeats(
    responses: AsyncGenerator[pb.GenerateResponse, None], period_s: float
) -> AsyncGenerator[pb.GenerateResponse, None]:
    """The same messages, and `still_working` whenever none has come for `period_s` (0 = never).

    Closing it closes `responses`.
    """
    async with aclosing(responses):
        while True:
            coming = asyncio.ensure_future(anext(responses, None))
            try:
                while not (await asyncio.wait({coming}, timeout=period_s or None))[0]:
                    yield pb.GenerateResponse(still_working=pb.StillWorking())
                response = coming.result()
            finally:
                await _ended(coming)
            if response is None:
                return
            yield response


async def _ended(task: "asyncio.Future[pb.GenerateResponse | None]") -> None:
    """Cancel what still runs and wait for its end: a generator that runs cannot be closed."""
    task.cancel()
    await asyncio.wait({task})
