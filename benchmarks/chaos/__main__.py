"""Random faults under a steady load on a real cluster; every answer is compared token by token with the known one.

python -m benchmarks.chaos examples/chaos.yaml --minutes 10 --every 10 --seed 1

Writes benchmarks/results/chaos.json and .png (or OUT.json and .png). Exit status 1 when a token was lost, repeated or
changed, or a request never ended.
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.chaos.load import RETRY, SILENCE_S, Load, questions
from benchmarks.chaos.report import plot, show, summarize
from benchmarks.chaos.run import torment
from benchmarks.chaos.stage import LiveStage, prepare_ray
from workers.core.errors import OutriderError
from workers.core.provenance import provenance, write_result

WHOLE_S = 180.0
LEVEL_S = 60.0
DEFAULT_OUT = Path(__file__).parents[1] / "results" / "chaos"


def main() -> None:
    """Start, torment, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="as for outrider serve; small models, two replicas of everything")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=6, help="requests at a time")
    parser.add_argument("--max-tokens", type=int, default=100, help="of each answer")
    parser.add_argument("--num-cpus", type=int, default=4, help="that Ray counts on the first node")
    parser.add_argument(
        "--rank-title", default="ray::TensorParallelRank", help="what the processes of TP ranks are called"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    if arguments.minutes <= 0 or arguments.every <= 0 or arguments.workers < 2:
        parser.error("--minutes and --every must be above 0, --workers at least 2")
    prepare_ray()
    console = Console()
    try:
        result = run(arguments, console)
    except OutriderError as error:
        parser.error(str(error))
    show(result, console)
    wrong = ("lost_tokens", "repeated_tokens", "changed_tokens", "different_texts", "unended")
    sys.exit(1 if any(result[name] for name in wrong) else 0)


def run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The whole run; writes its files."""
    origin = provenance(["python", "-m", "benchmarks.chaos", *sys.argv[1:]], seed=arguments.seed)

    said: list[str] = []

    def log(text: str) -> None:
        if text not in said[-1:]:
            said.append(text)
            console.print(text, markup=False, highlight=False)

    stage = LiveStage(
        arguments.config,
        num_cpus=arguments.num_cpus,
        rank_title=arguments.rank_title,
        seed=arguments.seed,
        log=log,
    )
    with stage:
        if not stage.wait_whole(WHOLE_S):
            raise RuntimeError(f"the cluster is not complete: {stage.running()}")
        load = Load(stage.front.address, arguments.workers, questions(arguments.max_tokens), arguments.seed)
        load.learn()
        before = stage.memory_mib()
        load.start()
        try:
            injected = torment(
                stage,
                load,
                seconds=60.0 * arguments.minutes,
                every_s=arguments.every,
                seed=arguments.seed,
                log=log,
            )
        finally:
            load.stop()
        whole = stage.wait_whole(WHOLE_S)
        levels = await_levels(stage.front.address)
        after = stage.memory_mib()
    result = summarize(load.records, injected, arguments.every) | {
        "unended": sum(not record.ended_s for record in load.records),
        "retry": {**asdict(RETRY), "silence_timeout_s": SILENCE_S},
        "minutes": arguments.minutes,
        "every_s": arguments.every,
        "requests_at_a_time": arguments.workers,
        "whole_at_the_end": whole,
        "memory_mib": {"before": before, "after": after},
        "levels_at_the_end": levels,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_result(arguments.out.with_suffix(".json"), result, origin)
    plot(load.records, injected, arguments.out.with_suffix(".png"))
    return result


def await_levels(address: str) -> list[dict[str, Any]]:
    """Requests and blocks in use at each replica, once none is, or after a while."""
    from outrider import Client

    deadline = time.monotonic() + LEVEL_S
    with Client(address, timeout=LEVEL_S, retry=RETRY) as client:
        while True:
            levels = [
                {
                    "role": one.role,
                    "requests": one.running_requests + one.waiting_requests,
                    "blocks_in_use": one.total_kv_blocks - one.free_kv_blocks,
                }
                for one in client.server_info().replicas
            ]
            if not any(one["requests"] or one["blocks_in_use"] for one in levels) or time.monotonic() > deadline:
                return levels
            time.sleep(0.5)


if __name__ == "__main__":
    main()
