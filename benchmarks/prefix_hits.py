"""Whether speculation costs hits in prefix caches: the same chats with and without it, on a real Ray.

python -m benchmarks.prefix_hits [--rounds 3]

Two verifiers and a drafter with tiny models. Four chats at a time share one of four system prompts and repeat, turn
by turn, what was said before, answers included. Once with room for all of it in the verifiers' caches, and once with
little more than what runs needs, so that trees and chats contend for blocks. In each round both ways get the same
chats, in caches that hold nothing of them, the way that begins alternating. Writes
benchmarks/results/prefix_hits.json.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from outrider import AsyncClient, Generation, Speculation

from benchmarks.together import document, load_several
from cluster.config.loader import IMPORT_PATH
from cluster.local import LocalCluster, free_port

__all__ = ["Run", "main", "summarize"]

BLOCKS = {"roomy": 1024, "tight": 96}  # of each verifier, 16 tokens each
CHATS, TOGETHER, TURNS = 24, 4, 5
SYSTEM_PROMPTS, SYSTEM, TURN, OUTPUT = 4, 256, 32, 24  # tokens, but for the first
VOCABULARY = 512
TARGET = 0.99


@dataclass(frozen=True)
class Run:
    """All chats, one way."""

    cache: str
    speculation: bool
    prompt_tokens: int
    hit_tokens: int
    acceptance_length: float


def application(target: Path, draft: Path, cache: str) -> dict[str, Any]:
    """By Serve's format."""
    actor = {"num_cpus": 0.1}
    model = {"dtype": "float32", "num_threads": 1}
    verifier = {
        "model": model | {"model": str(target)},
        "kv_cache": {"block_size": 16, "num_blocks": BLOCKS[cache]},
        "method": "draft_model",
        "speculation": {"max_depth": 4, "max_width": 2, "max_nodes": 8, "max_grace_ms": 1000.0},
    }
    drafter = {"model": model | {"model": str(draft)}, "kv_cache": {"block_size": 16, "num_blocks": 1024}}
    args = {
        "model_name": "small",
        "target": {"num_replicas": 2, "ray_actor_options": actor, "config": verifier},
        "draft": {"num_replicas": 1, "ray_actor_options": actor, "config": drafter},
        "gateway": {"ray_actor_options": actor},
    }
    return {"name": cache, "route_prefix": f"/{cache}", "import_path": IMPORT_PATH, "args": args}


async def drive(address: str, cache: str, number: int, *, speculate: bool) -> list[Generation]:
    """All turns of all chats of round `number`."""
    free = asyncio.Semaphore(TOGETHER)
    salt = f"{number} {speculate}"
    speculation = Speculation.on() if speculate else Speculation.off()
    draw = random.Random(number)
    systems = [tokens(draw, SYSTEM) for _ in range(SYSTEM_PROMPTS)]
    said = [[tokens(draw, TURN) for _ in range(TURNS)] for _ in range(CHATS)]
    async with AsyncClient(address, timeout=600.0, metadata={"application": cache}) as client:

        async def chat(which: int) -> list[Generation]:
            answers: list[Generation] = []
            prompt = list(systems[which % SYSTEM_PROMPTS])
            async with free:
                for turn in said[which]:
                    prompt += turn
                    answer = await client.generate(
                        token_ids=prompt,
                        max_tokens=OUTPUT,
                        temperature=0.0,
                        ignore_eos=True,
                        cache_salt=salt,
                        session_id=f"{salt} {which}",
                        speculation=speculation,
                    )
                    prompt += answer.token_ids
                    answers.append(answer)
            return answers

        return [one for answers in await asyncio.gather(*map(chat, range(CHATS))) for one in answers]


def tokens(draw: random.Random, number: int) -> list[int]:
    return [draw.randrange(3, VOCABULARY) for _ in range(number)]


def run_of(cache: str, answers: Sequence[Generation], *, speculate: bool) -> Run:
    stats = [one.stats for one in answers]
    return Run(
        cache,
        speculate,
        prompt_tokens=sum(one.prompt_tokens for one in stats),
        hit_tokens=sum(one.cached_prompt_tokens for one in stats),
        acceptance_length=sum(one.output_tokens for one in stats) / sum(one.verify_steps for one in stats),
    )


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """For each cache: hits with speculation over hits without, in each round and their median."""
    found = {}
    for cache in BLOCKS:
        on, off = ([r.hit_tokens for r in runs if r.cache == cache and r.speculation is way] for way in (True, False))
        ratios = [a / b for a, b in zip(on, off, strict=True)]
        found[cache] = {"median": median(ratios), "rounds": ratios}
    return found


def measure(rounds: int) -> list[Run]:
    from workers.models.tiny import build_tiny_draft, build_tiny_model

    runs = []
    with tempfile.TemporaryDirectory() as name, LocalCluster(num_cpus=4, log=print) as cluster:
        folder = Path(name)
        target = build_tiny_model(folder / "target", context_length=1024)
        draft = build_tiny_draft(folder / "draft", target)
        cluster.start_ray()
        content = document([application(target, draft, cache) for cache in BLOCKS], free_port(), free_port())
        cluster.deploy(load_several(content, folder))
        cluster.wait_ready(900.0)
        for number in range(rounds):
            for cache in BLOCKS:
                for speculate in (True, False) if number % 2 else (False, True):
                    work = drive(f"127.0.0.1:{cluster.grpc_port}", cache, number, speculate=speculate)
                    runs.append(run_of(cache, asyncio.run(work), speculate=speculate))
                    print(runs[-1])
    return runs


def main() -> None:
    """Measure, write, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    runs = measure(parser.parse_args().rounds)
    ratios = summarize(runs)
    from benchmarks.provenance import RESULTS
    from workers.core.provenance import provenance, write_result

    result = {"with_to_without": ratios, "target": TARGET, "runs": [asdict(run) for run in runs]}
    origin = provenance(["python", "-m", "benchmarks.prefix_hits", *sys.argv[1:]])
    write_result(RESULTS / "prefix_hits.json", result, origin)
    for cache, row in ratios.items():
        print(f"{cache}: {row['median']:.3f} of the hits without speculation")


if __name__ == "__main__":
    main()
