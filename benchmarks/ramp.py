"""A load that rises and falls again: does `auto` keep up with the better of always and never speculating?

python -m benchmarks.ramp examples/probe.yaml draft [--peak 16] [--seconds 60] [--rounds 3] [--out ramp]

Requests are kept running in a closed loop, one at a time at first, up to PEAK, and back to one. The same ramp is driven
in the three modes in turn, ROUNDS times; for each number of requests the median rate of each mode counts. Writes
OUT.json and OUT.png.
"""

import argparse
import queue
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cluster.config.yaml_file import read_settings
from workers.core.errors import ConfigurationError, OutriderError
from workers.core.figure import figure
from workers.core.provenance import provenance, write_result
from workers.core.request import StepOutput
from workers.core.sampling_params import SpeculationMode
from workers.models.loader import load_model
from workers.probe.config import ProbeConfig
from workers.probe.measure import MODES
from workers.probe.rig import Rig, open_rig
from workers.text.prompt_file import tokenize_prompts

__all__ = ["Level", "Loop", "drive", "levels_of", "main", "summarize"]

SETTLE = 0.2  # share of a level's time that does not count: the controller gets used to the load


@dataclass(frozen=True)
class Level:
    """One stretch of the ramp: so many requests at a time, at this rate."""

    mode: str
    rising: bool
    requests: int
    tokens_per_s: float


@dataclass
class _Sink:
    """Notes when tokens came, and tells when the request has ended."""

    ended: "queue.SimpleQueue[_Sink]"
    tokens: list[tuple[float, int]]
    error: OutriderError | None = None

    def push(self, output: StepOutput) -> None:
        self.tokens.append((time.perf_counter(), len(output.token_ids)))
        if output.finish_reason is not None:
            self.ended.put(self)

    def fail(self, error: OutriderError) -> None:
        self.error = error
        self.ended.put(self)


@dataclass
class Loop:
    """Keeps so many requests of one mode in the engine."""

    rig: Rig
    config: ProbeConfig
    prompts: Sequence[Sequence[int]]
    mode: SpeculationMode
    started: int = 0
    running: int = 0
    ended: "queue.SimpleQueue[_Sink]" = field(default_factory=queue.SimpleQueue)
    tokens: list[tuple[float, int]] = field(default_factory=list)

    def run(self, requests: int, seconds: float) -> float:
        """Tokens per second of all requests together; the time starts when no more than `requests` are left."""
        while self.running > requests:
            self._take(None)
        begin = time.perf_counter()
        while (left := begin + seconds - time.perf_counter()) > 0:
            while self.running < requests:
                self._submit()
            self._take(left)
        counted_from, counted_to = begin + SETTLE * seconds, begin + seconds
        counted = sum(n for at, n in self.tokens if counted_from <= at < counted_to)
        self.tokens.clear()
        return counted / (counted_to - counted_from)

    def drain(self) -> None:
        while self.running:
            self._take(None)

    def _submit(self) -> None:
        tree = self.config.trees[0].tree
        prompt = self.prompts[self.started % len(self.prompts)]
        request = self.rig.request(
            self.started,
            prompt,
            self.mode,
            tree,
            temperature=0.0,
            max_tokens=self.config.max_tokens,
            equal_work=True,
        )
        self.rig.engine.submit(request, _Sink(self.ended, self.tokens))
        self.started += 1
        self.running += 1

    def _take(self, timeout_s: float | None) -> None:
        try:
            sink = self.ended.get(timeout=timeout_s)
        except queue.Empty:
            return
        self.running -= 1
        if sink.error is not None:
            raise sink.error


def levels_of(peak: int) -> list[int]:
    """1, 2, 4, … `peak`, and down again."""
    rising = [1]
    while rising[-1] < peak:
        rising.append(min(peak, rising[-1] * 2))
    return [*rising, *reversed(rising[:-1])]


def drive(config: ProbeConfig, name: str, peak: int, seconds: float, rounds: int) -> list[Level]:
    """All levels of all ramps, in the order in which they were driven. `config` is to allow `peak` requests.

    Raises `ConfigurationError` where `config` has no proposer of that name.
    """
    if name not in config.proposers:
        raise ConfigurationError(f"there is no proposer {name!r}; there are: {', '.join(config.proposers)}")
    loaded = load_model(config.target)
    prompts = tokenize_prompts(config.prompts, loaded.tokenizer)[: config.max_prompts]
    levels = levels_of(peak)
    driven: list[Level] = []
    with open_rig(config, name, config.proposers[name], loaded, max(map(len, prompts))) as rig:
        for _ in range(rounds):
            for mode in MODES:
                loop = Loop(rig, config, prompts, mode)
                for index, requests in enumerate(levels):
                    rate = loop.run(requests, seconds / len(levels))
                    driven.append(Level(mode.value, index <= len(levels) // 2, requests, rate))
                loop.drain()
    return driven


def summarize(driven: Sequence[Level]) -> list[dict[str, Any]]:
    """For each stretch of the ramp the median rate of each mode, and `auto` against the better of the other two."""
    rows = []
    for rising, requests in dict.fromkeys((level.rising, level.requests) for level in driven):
        rates = {
            mode.value: median(
                level.tokens_per_s
                for level in driven
                if (level.mode, level.rising, level.requests) == (mode.value, rising, requests)
            )
            for mode in MODES
        }
        ratio = rates["auto"] / max(rates["off"], rates["on"])
        rows.append({"rising": rising, "requests": requests, **rates, "auto_to_better": ratio})
    return rows


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with figure(path, size=(10, 4)) as axis:
        for mode in MODES:
            axis.plot(range(len(rows)), [row[mode.value] for row in rows], marker="o", label=mode.value)
        axis.set_xticks(range(len(rows)), [str(row["requests"]) for row in rows])
        axis.set_xlabel("requests at a time, as the load rises and falls")
        axis.set_ylabel("tokens per second, all together")
        axis.legend()


def main() -> None:
    """Drive the ramps, write what came out."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("config", type=Path, help="as for outrider probe; the first of its trees is used")
    parser.add_argument("proposer", help="name of one of its proposers")
    parser.add_argument("--peak", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one ramp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("ramp"))
    arguments = parser.parse_args()
    try:
        config = read_settings(arguments.config, ProbeConfig).model_copy(update={"concurrency": (arguments.peak,)})
        driven = drive(config, arguments.proposer, arguments.peak, arguments.seconds, arguments.rounds)
    except OutriderError as error:
        parser.error(str(error))
    rows = summarize(driven)
    origin = provenance(config=config.model_dump(mode="json"))
    result = {"levels": rows, "driven": [asdict(level) for level in driven]}
    write_result(arguments.out.with_suffix(".json"), result, origin)
    plot(rows, arguments.out.with_suffix(".png"))
    for row in rows:
        rates = "  ".join(f"{mode.value} {row[mode.value]:.1f}" for mode in MODES)
        direction = "up" if row["rising"] else "down"
        print(f"{row['requests']:3d} {direction:4s} {rates}  auto/better {row['auto_to_better']:.3f}")


if __name__ == "__main__":
    main()
