"""The proxy does what it says, and nothing else."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from benchmarks.faults.connection import Direction, Shape
from benchmarks.faults.proxy import FaultProxy
from benchmarks.faults.threaded import ProxyThread

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SILENCE_S = 0.2
HANG_S = 60.0


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """A server that sends back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture
async def proxy(echo: str) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy([echo], rng=random.Random(1))
    await proxy.start()
    yield proxy
    await proxy.close()
    assert proxy.open_connections == 0


async def connect(proxy: FaultProxy) -> Pair:
    host, port = proxy.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def exchange(pair: Pair, data: bytes) -> bytes:
    pair[1].write(data)
    async with asyncio.timeout(HANG_S):
        return await pair[0].readexactly(len(data))


async def is_silent(pair: Pair) -> bool:
    try:
        async with asyncio.timeout(SILENCE_S):
            await pair[0].read(1)
    except TimeoutError:
        return True
    return False


async def is_reset(pair: Pair) -> bool:
    async with asyncio.timeout(HANG_S):
        try:
            return await pair[0].read(1) == b"" and False
        except ConnectionResetError:
            return True


async def test_bytes_arrive_as_they_were(proxy: FaultProxy) -> None:
    data = random.Random(2).randbytes(1_000_000)
    pair = await connect(proxy)
    assert await exchange(pair, data) == data
    assert proxy.bytes_passed(Direction.UP) == proxy.bytes_passed(Direction.DOWN) == len(data)
    pair[1].write_eof()
    async with asyncio.timeout(HANG_S):
        assert await pair[0].read() == b""  # the end is passed on, both ways


async def test_a_cut_resets_what_is_open_and_serves_what_comes(proxy: FaultProxy) -> None:
    pair = await connect(proxy)
    assert await exchange(pair, b"before") == b"before"
    assert proxy.cut() == 1
    assert await is_reset(pair)
    assert await exchange(await connect(proxy), b"after") == b"after"


async def test_refusing_lasts_until_it_is_healed(proxy: FaultProxy) -> None:
    pair = await connect(proxy)
    await exchange(pair, b"x")
    proxy.refuse()
    assert await is_reset(pair)
    assert await is_reset(await connect(proxy))
    proxy.heal()
    assert await exchange(await connect(proxy), b"x") == b"x"


async def test_a_black_hole_accepts_and_swallows(proxy: FaultProxy) -> None:
    pair = await connect(proxy)
    await exchange(pair, b"x")
    proxy.black_hole()
    later = await connect(proxy)
    for one in (pair, later):
        one[1].write(b"lost")
        assert await is_silent(one)
    assert proxy.bytes_lost(Direction.UP) == 8
    proxy.heal()
    assert await is_reset(pair), "its stream has a hole"
    assert await exchange(await connect(proxy), b"x") == b"x"


async def test_half_open_loses_one_direction(proxy: FaultProxy) -> None:
    pair = await connect(proxy)
    await exchange(pair, b"x")
    proxy.half_open(Direction.DOWN)
    pair[1].write(b"heard")
    assert await is_silent(pair)
    assert (proxy.bytes_lost(Direction.UP), proxy.bytes_lost(Direction.DOWN)) == (0, 5)


async def test_what_is_held_arrives_later(proxy: FaultProxy) -> None:
    pair = await connect(proxy)
    proxy.hold()
    pair[1].write(b"late")
    assert await is_silent(pair)
    proxy.heal()
    async with asyncio.timeout(HANG_S):
        assert await pair[0].readexactly(4) == b"late"


@pytest.mark.parametrize(
    "shape", [Shape(latency_s=0.1), Shape(latency_s=0.05, jitter_s=0.1)], ids=["latency", "jitter"]
)
async def test_latency_delays_and_keeps_the_order(proxy: FaultProxy, shape: Shape) -> None:
    proxy.slow(shape)
    pair = await connect(proxy)
    sent = [bytes([i]) * 1000 for i in range(20)]
    started = time.monotonic()
    for data in sent:
        pair[1].write(data)
        await asyncio.sleep(0.005)
    async with asyncio.timeout(HANG_S):
        assert await pair[0].readexactly(20_000) == b"".join(sent)
    took_s = time.monotonic() - started
    assert took_s >= 2 * shape.latency_s  # there and back
    assert took_s < 20 * 2 * shape.latency_s + HANG_S / 2, "chunks travel side by side, not one after the other"


async def test_bandwidth_is_limited(proxy: FaultProxy) -> None:
    proxy.slow(Shape(bytes_per_s=100_000))
    started = time.monotonic()
    await exchange(await connect(proxy), bytes(20_000))
    assert time.monotonic() - started >= 0.2


async def test_several_upstreams_take_turns_and_dead_ones_are_skipped(echo: str) -> None:
    proxy = FaultProxy(["127.0.0.1:1", echo])
    await proxy.start()
    for _ in range(3):
        assert await exchange(await connect(proxy), b"x") == b"x"
    proxy.upstreams[:] = ["127.0.0.1:1"]
    assert await is_reset(await connect(proxy))
    await proxy.close()


@pytest.mark.parametrize("bad", [{"latency_s": -1.0}, {"jitter_s": -0.1}, {"bytes_per_s": 0.0}])
def test_shapes_that_cannot_be(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Shape(**bad)


def test_no_upstream() -> None:
    with pytest.raises(ValueError, match="upstreams"):
        FaultProxy([])


async def test_from_another_thread(echo: str) -> None:
    with ProxyThread() as thread:
        proxy = thread.open(echo)
        host, port = proxy.address.split(":")
        pair = await asyncio.open_connection(host, int(port))
        assert await exchange(pair, b"x") == b"x"
        assert await asyncio.to_thread(proxy.cut) == 1
        assert await is_reset(pair)
