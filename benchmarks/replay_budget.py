"""Replays a trace of the budget controller: decides every step again from what it saw, and plots what it did.

python -m benchmarks.replay_budget TRACE [--plot out.png]

A verifier writes the trace when `speculation.trace_path` is set (docs/speculation.md).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.core.figure import figure
from workers.scheduling.allocation import decide
from workers.verifier.budget_trace import snapshot_from_json

__all__ = ["Replayed", "plot", "read_trace", "replay"]


@dataclass(frozen=True)
class Replayed:
    """One step: what was decided, whether the same would be decided now, and what it yielded."""

    seconds: float  # since the first step
    nodes: int
    offered: int
    same: bool
    expected_tokens: float | None  # None = nobody was asked
    expected_ms: float | None
    emitted: int
    ms: float  # with waiting and drafting
    advantage: float
    active: int
    requests: int


def read_trace(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def replay(records: Sequence[dict[str, Any]]) -> list[Replayed]:
    """Decide again; a pure function of each record."""
    return [_step(record, records[0]["seconds"]) for record in records]


def _step(record: dict[str, Any], start: float) -> Replayed:
    nodes = offered = 0
    same, tokens, ms = True, None, None
    if record["snapshot"] is not None:
        snapshot = snapshot_from_json(record["snapshot"])
        decision = decide(snapshot)
        same = [list(chosen) for chosen in decision.nodes] == record["nodes"]
        nodes, offered = decision.num_nodes, sum(len(offer.survivals) for offer in snapshot.offers)
        tokens, ms = decision.tokens, decision.ms
    return Replayed(
        seconds=record["seconds"] - start,
        nodes=nodes,
        offered=offered,
        same=same,
        expected_tokens=tokens,
        expected_ms=ms,
        emitted=record["emitted"],
        ms=record["ms"] + record["wait_ms"] + record["draft_ms"],
        advantage=record["advantage"],
        active=record["active"],
        requests=record["requests"],
    )


def plot(steps: Sequence[Replayed], path: Path) -> None:
    """Nodes, requests, milliseconds and expected advantage over time."""
    seconds = [s.seconds for s in steps]
    with figure(path, 4, size=(11, 11), share_x=True) as (nodes, load, cost, gain):
        nodes.plot(seconds, [s.offered for s in steps], color="0.75", label="offered")
        nodes.plot(seconds, [s.nodes for s in steps], label="verified")
        nodes.set_ylabel("nodes in the step")
        load.step(seconds, [s.requests for s in steps], color="0.6", where="post", label="requests that may speculate")
        load.step(seconds, [s.active for s in steps], where="post", label="active")
        load.set_ylabel("requests")
        cost.plot(seconds, [s.ms for s in steps], ".", markersize=3, color="0.6", label="measured")
        asked = [s for s in steps if s.expected_ms is not None]
        cost.plot([s.seconds for s in asked], [s.expected_ms or 0.0 for s in asked], label="predicted, without waiting")
        cost.set_ylabel("ms a step")
        gain.plot(seconds, [s.advantage for s in steps], label="expected goodput with / without speculation")
        gain.axhline(1.0, color="0.6", linewidth=0.8)
        gain.set_ylabel("advantage")
        gain.set_xlabel("seconds")
        for axis in (nodes, load, cost, gain):
            axis.legend(loc="upper right", fontsize="small")
            axis.grid(alpha=0.3)


def main() -> None:
    """Replay, summarise and plot one trace."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--plot", type=Path, help="write a PNG there")
    arguments = parser.parse_args()
    steps = replay(read_trace(arguments.trace))
    asked = [s for s in steps if s.expected_tokens is not None]
    print(f"steps                  {len(steps)}")
    print(f"with a question        {len(asked)}")
    print(f"decided otherwise now  {sum(not s.same for s in steps)}")
    print(f"nodes verified/offered {sum(s.nodes for s in steps)} / {sum(s.offered for s in steps)}")
    if asked:
        expected = sum(s.expected_tokens or 0.0 for s in asked)
        print(f"expected/emitted       {expected:.0f} / {sum(s.emitted for s in asked)}")
    if arguments.plot is not None:
        plot(steps, arguments.plot)
        print(f"-> {arguments.plot}")


if __name__ == "__main__":
    main()
