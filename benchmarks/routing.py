"""What routing by prefix caches is worth: four verifiers and a gateway for each policy, prompts that share beginnings.

python -m benchmarks.routing [--requests 160] [--rounds 5]

A real Ray, real gRPC, real processes. The model is tiny and its steps are drawn out to 10 ms and half a millisecond for
each token, so that four verifiers work side by side on a machine with fewer cores. In each round every policy gets the
same requests, eight at a time, in caches that no run before it has filled. Each verifier's cache holds a quarter of the
beginnings, so that the four together hold all of them once, and one request that runs. Without sharing, prompts of the
same lengths have nothing in common. Writes benchmarks/results/routing.json.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outrider import AsyncClient, Generation, Speculation

from benchmarks.paced_verifier import ROW_VARIABLE, STEP_VARIABLE
from benchmarks.together import document, load_several
from cluster.config.loader import IMPORT_PATH
from cluster.local import LocalCluster, free_port

__all__ = ["Run", "application", "main", "prompts_of", "summarize"]

POLICIES = ("kv_aware", "power_of_two", "round_robin")
WORKLOADS = ("shared", "unshared")
VERIFIERS = 4
GROUPS, PREFIX, SUFFIX, OUTPUT = 24, 768, 24, 8  # prompts with equal beginnings; tokens
CONCURRENCY = 8
BLOCK = 16
VOCABULARY = 512
STEP_MS, ROW_MS = 10.0, 0.5
PACED = "benchmarks.paced_app:build"


@dataclass(frozen=True)
class Run:
    """All requests of one workload under one policy."""

    workload: str
    policy: str
    requests: int
    prompt_tokens: int
    hit_tokens: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    output_tokens_per_s: float


def application(target: Path, policy: str) -> dict[str, Any]:
    """Of one policy, by Serve's format. Caches for a quarter of the beginnings and a running request."""
    blocks = -(-GROUPS * PREFIX // (4 * BLOCK)) + -(-(PREFIX + SUFFIX + OUTPUT) // BLOCK)
    actor = {"num_cpus": 0.1}
    verifier = {
        "model": {"model": str(target), "dtype": "float32", "num_threads": 1},
        "kv_cache": {"block_size": BLOCK, "num_blocks": blocks},
        "method": "none",
        "max_running_requests": 8,
    }
    args = {
        "model_name": "small",
        "target": {"num_replicas": VERIFIERS, "ray_actor_options": actor, "config": verifier},
        "gateway": {"ray_actor_options": actor, "routing": {"verifiers": {"policy": policy}}},
    }
    return {"name": policy, "route_prefix": f"/{policy}", "import_path": IMPORT_PATH, "args": args}


def prompts_of(workload: str, count: int, seed: int) -> list[list[int]]:
    """Token ids. Shared: one of 24 beginnings, drawn evenly, and an end of its own."""
    draw = random.Random(seed)

    def tokens(number: int) -> list[int]:
        return [draw.randrange(3, VOCABULARY) for _ in range(number)]

    beginnings = [tokens(PREFIX) for _ in range(GROUPS)]
    if workload == "shared":
        return [[*draw.choice(beginnings), *tokens(SUFFIX)] for _ in range(count)]
    return [tokens(PREFIX + SUFFIX) for _ in range(count)]


async def drive(address: str, policy: str, prompts: Sequence[list[int]], salt: str) -> tuple[list[Generation], float]:
    """Answers, and seconds that they took together."""
    free = asyncio.Semaphore(CONCURRENCY)
    async with AsyncClient(address, timeout=600.0, metadata={"application": policy}) as client:

        async def one(prompt: list[int]) -> Generation:
            async with free:
                return await client.generate(
                    token_ids=prompt,
                    max_tokens=OUTPUT,
                    temperature=0.0,
                    ignore_eos=True,
                    cache_salt=salt,
                    speculation=Speculation.off(),
                )

        started = time.perf_counter()
        answers = await asyncio.gather(*map(one, prompts))
        return answers, time.perf_counter() - started


def run_of(workload: str, policy: str, answers: Sequence[Generation], seconds: float) -> Run:
    times = sorted(one.stats.time_to_first_token_ms for one in answers)
    return Run(
        workload,
        policy,
        len(answers),
        prompt_tokens=sum(one.stats.prompt_tokens for one in answers),
        hit_tokens=sum(one.stats.cached_prompt_tokens for one in answers),
        ttft_p50_ms=median(times),
        ttft_p95_ms=times[int(0.95 * len(times))],
        output_tokens_per_s=sum(one.stats.output_tokens for one in answers) / seconds,
    )


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """kv_aware against each other policy: medians over rounds of the ratios within a round."""

    def ratio(workload: str, policy: str, name: str) -> float:
        of = {p: [getattr(r, name) for r in runs if (r.workload, r.policy) == (workload, p)] for p in POLICIES}
        return float(median(own / max(other, 1e-9) for own, other in zip(of["kv_aware"], of[policy], strict=True)))

    return {
        policy: {
            "shared_hit_tokens": ratio("shared", policy, "hit_tokens"),
            "shared_ttft_p50": ratio("shared", policy, "ttft_p50_ms"),
            "shared_throughput": ratio("shared", policy, "output_tokens_per_s"),
            "unshared_throughput": ratio("unshared", policy, "output_tokens_per_s"),
        }
        for policy in POLICIES[1:]
    }


def measure(requests: int, rounds: int) -> list[Run]:
    from workers.models.tiny import build_tiny_model

    os.environ |= {STEP_VARIABLE: str(STEP_MS), ROW_VARIABLE: str(ROW_MS)}
    runs = []
    with tempfile.TemporaryDirectory() as name, LocalCluster(num_cpus=4, log=print) as cluster:
        folder = Path(name)
        target = build_tiny_model(folder / "target", context_length=1024)
        cluster.start_ray()
        content = document([application(target, policy) for policy in POLICIES], free_port(), free_port())
        cluster.deploy(load_several(content, folder, PACED))
        cluster.wait_ready(900.0)
        address = f"127.0.0.1:{cluster.grpc_port}"
        for number in range(rounds):
            for policy in POLICIES[number % len(POLICIES) :] + POLICIES[: number % len(POLICIES)]:
                for workload in WORKLOADS:
                    prompts = prompts_of(workload, requests, number)
                    salt = f"{number} {policy} {workload}"
                    asyncio.run(drive(address, policy, prompts[:CONCURRENCY], f"warm {salt}"))
                    runs.append(run_of(workload, policy, *asyncio.run(drive(address, policy, prompts, salt))))
                    print(runs[-1])
    return runs


def main() -> None:
    """Measure, write, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runs = measure(arguments.requests, arguments.rounds)
    ratios = summarize(runs)
    from benchmarks.provenance import RESULTS
    from workers.core.provenance import provenance, write_result

    targets = {"shared_hit_tokens": 3.0, "shared_ttft_p50": 0.5, "unshared_throughput": 0.97}
    result = {"kv_aware_to": ratios, "targets": targets, "runs": [asdict(run) for run in runs]}
    write_result(RESULTS / "routing.json", result, provenance(["python", "-m", "benchmarks.routing"]))
    for policy, row in ratios.items():
        print(f"kv_aware / {policy}: " + "  ".join(f"{name} {value:.2f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
