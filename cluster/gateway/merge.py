"""Several streams as one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

__all__ = ["merged"]

T = TypeVar("T")


async def merged(streams: Sequence[AsyncGenerator[T, None]], buffer: int = 16) -> AsyncGenerator[T, None]:
    """Items of all streams as they come, each stream in its order; at most `buffer` wait for the reader.

    The first error of a stream ends all of them and is raised. Closing this iterator closes them as well.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    queue: asyncio.Queue[tuple[T] | Exception | None] = asyncio.Queue(buffer)
    tasks = [asyncio.create_task(_drain(stream, queue)) for stream in streams]
    try:
        open_streams = len(tasks)
        while open_streams:
            entry = await queue.get()
            if entry is None:
                open_streams -= 1
            elif isinstance(entry, Exception):
                raise entry
            else:
                yield entry[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(stream: AsyncGenerator[T, None], queue: "asyncio.Queue[tuple[T] | Exception | None]") -> None:
    try:
        async with aclosing(stream):
            async for item in stream:
                await queue.put((item,))
    except Exception as error:  # noqa: BLE001  # raised again by the reader
        await queue.put(error)
    else:
        await queue.put(None)
