"""What is left of a server's work when it is asked for more than it can do.

python -m benchmarks.overload [--model models/SmolLM2-135M-Instruct] [--step-ms 0] [--seconds 60] [--loads 0.5 1 2]

A verifier in a process of its own behind a gateway; 90 % of the requests come with one API key, 10 % with another.
The capacity is measured with so many requests at a time that none has to wait long; then requests arrive at random
(Poisson) at each LOAD times that rate, whatever becomes of them, each with a deadline. Goodput counts the requests that
ended within their deadline, and their tokens. All of it is done ROUNDS times, and the medians count.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from outrider.v1 import common_pb2, verifier_pb2
from outrider.v1 import generation_pb2 as pb

from benchmarks.paced_verifier import STEP_VARIABLE
from cluster.config.gateway import GatewayConfig
from cluster.config.tenancy import TenancyConfig
from cluster.gateway.service import GatewayService
from cluster.router.membership import ReplicaRecord
from cluster.security.api_keys import hash_of, new_key
from cluster.security.key_file import KeyEntry, KeyFile, write_keys
from workers.core.config import KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.core.errors import OverloadedError
from workers.core.provenance import provenance, write_result
from workers.rpc.process import server_process
from workers.text.tokenizer import Tokenizer

__all__ = ["Load", "Outcome", "drive", "main", "summarize"]

SEED = 7
SAMPLE_S = 0.25
PROMPT_TOKENS = (16, 64)
OUTPUT_TOKENS = (16, 48)
SHARES = {"heavy": 0.9, "light": 0.1}  # of the arrivals


@dataclass(frozen=True)
class Outcome:
    """What became of one request. Times are seconds."""

    tenant: str
    ended: str  # in time, late, deadline, refused, refused without a hint, failed
    tokens: int
    seconds: float
    hint_s: float | None = None


@dataclass
class Samples:
    """Taken while a load is driven."""

    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    at_gateway: list[int] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Load:
    factor: float
    offered_per_s: float
    seconds: float
    outcomes: Sequence[Outcome]
    samples: Samples


@dataclass
class Bench:
    """A gateway in front of one verifier process."""

    service: GatewayService
    record: ReplicaRecord
    process: psutil.Process
    keys: dict[str, str]
    max_running: int
    vocab_size: int

    def message(self, draw: random.Random, deadline_s: float | None) -> pb.GenerateRequest:
        prompt = [draw.randrange(10, self.vocab_size) for _ in range(draw.randint(*PROMPT_TOKENS))]
        sampling = common_pb2.SamplingParams(max_tokens=draw.randint(*OUTPUT_TOKENS), seed=1, ignore_eos=True)
        return pb.GenerateRequest(
            tokens=pb.TokenIds(token_ids=prompt),
            sampling=sampling,
            deadline_ms=0 if deadline_s is None else round(deadline_s * 1e3),
        )

    async def ask(self, tenant: str, message: pb.GenerateRequest, deadline_s: float | None) -> Outcome:
        started, tokens, reason = time.monotonic(), 0, None
        metadata = (("authorization", f"Bearer {self.keys[tenant]}"),)
        try:
            async with aclosing(self.service.generate(message, metadata)) as responses:
                async for one in responses:
                    tokens += len(one.delta.token_ids)
                    if one.HasField("finished"):
                        reason = one.finished.finish_reason
        except OverloadedError as error:
            ended = "refused" if error.retry_after_s is not None else "refused without a hint"
            return Outcome(tenant, ended, tokens, time.monotonic() - started, error.retry_after_s)
        except Exception as error:  # noqa: BLE001  # counted, and named in the result
            return Outcome(tenant, f"failed: {type(error).__name__}", tokens, time.monotonic() - started)
        seconds = time.monotonic() - started
        if reason == common_pb2.FINISH_REASON_DEADLINE:
            return Outcome(tenant, "deadline", tokens, seconds)
        in_time = deadline_s is None or seconds <= deadline_s
        return Outcome(tenant, "in time" if in_time else "late", tokens, seconds)

    async def sample(self, samples: Samples) -> None:
        stub = self.service._pool.stub(self.record)
        own = psutil.Process()
        while True:
            info = await stub.GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=60.0)
            samples.waiting.append(info.waiting_requests)
            samples.running.append(info.running_requests)
            samples.at_gateway.append(self.service.active_requests)
            samples.rss_mib.append((self.process.memory_info().rss + own.memory_info().rss) / 2**20)
            await asyncio.sleep(SAMPLE_S)


@dataclass(frozen=True)
class _OneVerifier:
    """A `ReplicaDirectory`."""

    record: ReplicaRecord

    def verifiers(self) -> Sequence[ReplicaRecord]:
        return (self.record,)

    def drafters(self) -> Sequence[ReplicaRecord]:
        return ()


@asynccontextmanager
async def bench(model: str, step_ms: float, max_running: int, max_waiting: int) -> AsyncIterator[Bench]:
    os.environ[STEP_VARIABLE] = str(step_ms)
    config = VerifierConfig(
        model=ModelConfig(model=model),
        kv_cache=KvCacheConfig(num_blocks=1024),
        speculation=SpeculationConfig(profile_ms=0.0),
        method="none",
        max_running_requests=max_running,
        max_waiting_requests=max_waiting,
    )
    tokenizer = Tokenizer.load(model)
    keys = {tenant: new_key() for tenant in SHARES}
    before = set(psutil.Process().children())
    with (
        tempfile.TemporaryDirectory() as folder,
        server_process("verifier", config, "benchmarks.paced_verifier") as info,
    ):
        (process,) = set(psutil.Process().children()) - before
        path = Path(folder) / "keys.yaml"
        write_keys(path, KeyFile(keys={name: KeyEntry(sha256=hash_of(key)) for name, key in keys.items()}))
        block_size = config.kv_cache.block_size
        record = ReplicaRecord(
            "verifier", info["id"], info["address"], info["incarnation"], "m", "f", tokenizer.tokenizer_hash, block_size
        )
        service = GatewayService(
            config=GatewayConfig(tenancy=TenancyConfig(keys_file=str(path))),
            model_name="m",
            tokenizer=tokenizer,
            directory=_OneVerifier(record),
            version="benchmark",
            clock=time.monotonic,
            rng=random.Random(SEED),
        )
        try:
            yield Bench(service, record, process, keys, max_running, info["vocab_size"])
        finally:
            await service.close()


async def capacity(rig: Bench, seconds: float) -> tuple[float, float]:
    """Requests per second that can be served at most, and the median seconds that one takes then."""
    draw = random.Random(SEED)
    end = time.monotonic() + seconds
    outcomes: list[tuple[float, Outcome]] = []

    async def client() -> None:
        while time.monotonic() < end:
            outcome = await rig.ask("heavy", rig.message(draw, None), None)
            outcomes.append((time.monotonic(), outcome))

    settled = time.monotonic() + seconds / 4
    await asyncio.gather(*(client() for _ in range(rig.max_running)))
    counted = [one for at, one in outcomes if settled <= at < end] or [one for _, one in outcomes]
    return len(counted) / (end - settled), median(one.seconds for one in counted)


async def drive(rig: Bench, factor: float, rate: float, deadline_s: float, seconds: float) -> Load:
    """Requests at `factor * rate` per second for `seconds`; returns when the last one has ended."""
    draw, samples = random.Random(SEED + round(1000 * factor)), Samples()
    sampling = asyncio.create_task(rig.sample(samples))
    calls: list[asyncio.Task[Outcome]] = []
    started = time.monotonic()
    due = started
    while (due := due + draw.expovariate(factor * rate)) < started + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tenant = draw.choices(list(SHARES), list(SHARES.values()))[0]
        message = rig.message(draw, deadline_s)
        calls.append(asyncio.create_task(rig.ask(tenant, message, deadline_s)))
    outcomes = await asyncio.gather(*calls)
    took = time.monotonic() - started
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    return Load(factor, factor * rate, took, outcomes, samples)


def summarize(load: Load) -> dict[str, Any]:
    """One row of the result."""
    good = [one for one in load.outcomes if one.ended == "in time"]
    hints = sorted(one.hint_s for one in load.outcomes if one.hint_s is not None)
    refusals = sorted(one.seconds for one in load.outcomes if one.ended == "refused")
    samples = load.samples
    tenants = {
        name: {
            "asked": sum(one.tenant == name for one in load.outcomes),
            "in_time": sum(one.tenant == name for one in good),
        }
        for name in SHARES
    }
    return {
        "load": load.factor,
        "offered_requests_per_s": load.offered_per_s,
        "seconds": load.seconds,
        "goodput_requests_per_s": len(good) / load.seconds,
        "goodput_tokens_per_s": sum(one.tokens for one in good) / load.seconds,
        "tokens_of_others": sum(one.tokens for one in load.outcomes if one.ended != "in time"),
        "ended": dict(Counter(one.ended for one in load.outcomes)),
        "tenants": tenants,
        "median_hint_s": median(hints) if hints else None,
        "largest_hint_s": hints[-1] if hints else None,
        "median_refusal_after_s": median(refusals) if refusals else None,
        "waiting": {"median": median(samples.waiting), "largest": max(samples.waiting)},
        "running": {"median": median(samples.running), "largest": max(samples.running)},
        "at_gateway_largest": max(samples.at_gateway),
        "rss_mib": {"first": samples.rss_mib[0], "largest": max(samples.rss_mib), "last": samples.rss_mib[-1]},
    }


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    rounds: list[dict[str, Any]] = []
    async with bench(arguments.model, arguments.step_ms, arguments.max_running, arguments.max_waiting) as rig:
        await capacity(rig, min(10.0, arguments.seconds))  # warms up
        for number in range(arguments.rounds):
            rate, usual_s = await capacity(rig, arguments.seconds)
            deadline_s = arguments.deadline or 3.0 * usual_s
            print(f"round {number + 1}: capacity {rate:.2f}/s, {usual_s:.2f} s each; deadline {deadline_s:.2f} s")
            rows = []
            for factor in arguments.loads:
                rows.append(summarize(await drive(rig, factor, rate, deadline_s, arguments.seconds)))
                print(line(rows[-1]), flush=True)
            rounds.append(
                {"capacity_requests_per_s": rate, "usual_s": usual_s, "deadline_s": deadline_s, "loads": rows}
            )
    peaks = [max(row["goodput_tokens_per_s"] for row in one["loads"]) for one in rounds]
    of_peak = {
        f"{factor:g}": median(
            one["loads"][index]["goodput_tokens_per_s"] / peak for one, peak in zip(rounds, peaks, strict=True)
        )
        for index, factor in enumerate(arguments.loads)
    }
    settings = {
        name: getattr(arguments, name) for name in ("model", "step_ms", "max_running", "max_waiting", "seconds")
    }
    return {"settings": settings, "rounds": rounds, "goodput_of_peak": of_peak}


def line(row: dict[str, Any]) -> str:
    """A row for a reader."""
    good = f"{row['goodput_requests_per_s']:.2f} requests/s, {row['goodput_tokens_per_s']:.1f} tokens/s"
    return f"  {row['load']:g}x: goodput {good}; {row['ended']}; waiting {row['waiting']}; {row['tenants']}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct")
    parser.add_argument("--step-ms", type=float, default=0.0, help="least time of a step (benchmarks.paced_verifier)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 1.0, 2.0], help="times the capacity")
    parser.add_argument("--deadline", type=float, default=None, help="seconds; default: three times the usual")
    parser.add_argument("--max-running", type=int, default=8)
    parser.add_argument("--max-waiting", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/overload.json"))
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments))
    write_result(arguments.out, result, provenance(seed=SEED))
    print(f"goodput against the peak: {result['goodput_of_peak']} -> {arguments.out}")


if __name__ == "__main__":
    main()
