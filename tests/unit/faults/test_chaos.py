"""The chaos run's own parts: faults in turn, what is counted, proxies that register."""

import asyncio
import random
from itertools import islice

import pytest

from benchmarks.chaos.faults import FAULTS, endless
from benchmarks.chaos.hub import ProxyHub, register
from benchmarks.chaos.load import RequestRecord
from benchmarks.chaos.report import summarize
from benchmarks.chaos.run import Injected
from benchmarks.faults.comparison import Difference
from benchmarks.faults.threaded import ProxyThread


def test_every_fault_comes_in_each_round_and_a_seed_repeats_them() -> None:
    kinds = [one.kind for one in FAULTS]
    assert len(set(kinds)) == len(kinds)
    first, again, other = ([one.kind for one in islice(endless(random.Random(s)), 2 * len(kinds))] for s in (1, 1, 2))
    assert sorted(first[: len(kinds)]) == sorted(first[len(kinds) :]) == sorted(kinds)
    assert first == again != other


def test_what_is_counted() -> None:
    good = RequestRecord(0.0, 10.0, [(1.0, 3), (2.0, 3), (8.0, 4)], attempts=2)
    bad = RequestRecord(1.0, 4.0, [(2.0, 5)], attempts=1, difference=Difference(1, 2, 3), text_differs=True)
    failed = RequestRecord(3.0, 5.0, [], attempts=9, error="UnavailableError: gone")
    faults = [Injected("kill", 2.5, 3.0, 7.5), Injected("cut", 9.0, 9.1)]
    result = summarize([good, bad, failed], faults, every_s=5.0)
    assert (result["requests"], result["completed"], result["failed"]) == (3, 2, 1)
    assert result["failures"] == {"UnavailableError: gone": 1}
    assert result["tokens"] == 15
    assert (result["lost_tokens"], result["repeated_tokens"], result["changed_tokens"]) == (1, 2, 3)
    assert (result["different_texts"], result["resumed_requests"], result["most_attempts"]) == (1, 2, 9)
    kill = result["by_kind"]["kill"]
    assert kill["silence_s"] == {"p50": 5.5, "max": 5.5}, "from the fault to the next token"
    assert kill["replicas_back_s"] == {"p50": 5.0, "max": 5.0}
    assert result["by_kind"]["cut"]["replicas_back_s"] is None


async def test_replicas_register_and_are_reached_through_a_proxy() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    own = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with ProxyThread() as thread:
        hub = ProxyHub(thread)
        address = await register(hub.address, "verifier", "v1", own)
        assert address != own
        assert hub.by_role("verifier") == [], "nobody is connected"
        host, port = address.rsplit(":", 1)
        reader, _ = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(60):
            assert await reader.readexactly(5) == b"hello"
        (proxy,) = hub.by_role("verifier")
        assert hub.by_role("drafter") == []
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 60)
        hub.close()
    server.close()
