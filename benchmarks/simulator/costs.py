"""What a verifier's step costs and yields: `decide` and `grace_ms` of `workers.scheduling` over a known machine.

The real `BudgetController` learns costs and survivals step by step. Here both are known, so its pure parts give what it
converges to, and equal steps are decided once: a thousand verifiers take tens of thousands of steps a second.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.simulator.settings import Curve
from workers.scheduling.allocation import Offer, StepSnapshot, decide
from workers.scheduling.grace import Pending, grace_ms
from workers.scheduling.step_cost import NUM_COEFFICIENTS, CostSample, StepCost, StepLoad, fit_cost

__all__ = ["Step", "StepPlanner", "cost_of", "measured_survivals"]

SOURCE = Path(__file__).parents[1] / "results" / "probe_draft.json"
TREE = {"depth": 2, "width": 2, "nodes": 4}
CONTEXT_BUCKET = 8192
RESPONSE_BUCKET_MS = 2.0
MAX_GRACE_MS = 20.0
MAX_NODES = 512

GPU_ASSUMED = (9.0, 0.004, 0.0, 0.0, 0.03, 0.0, 0.02, 0.04, 0.0)
"""Not measured. A model of 8 billion parameters in 16 bits on a GPU of 3 TB/s: 9 ms to read the weights and to launch,
rows nearly free up to 128, 0.034 ms each beyond (30,000 prompt tokens a second), 0.02 ms per request, 0.04 ms to read
the K/V of 1024 tokens."""


@dataclass(frozen=True)
class Step:
    """`ms` it takes, with the wait for proposals; each decoding request gains `tokens`."""

    ms: float
    tokens: float
    nodes: int


def _findings(path: Path = SOURCE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["result"]["findings"]
    return found


def cost_of(curve: Curve) -> StepCost:
    """cpu_measured: SmolLM2-135M on two cores, fitted to benchmarks/results/probe_draft.json."""
    if curve == "gpu_assumed":
        assert len(GPU_ASSUMED) == NUM_COEFFICIENTS  # noqa: S101
        return StepCost(GPU_ASSUMED)
    measured = _findings()["cost"]["verify_ms"].items()
    return fit_cost(CostSample(StepLoad(int(rows), 0, 0), ms) for rows, ms in measured)


def measured_survivals() -> tuple[float, ...]:
    """Of each node of a tree (`TREE`, greedy): what was accepted at a depth, evenly over the depth's nodes."""
    found = next(one for one in _findings()["acceptances"] if one["tree"] == TREE and one["temperature"] == 0.0)
    width = found["drafted_tokens"] / sum(found["drafted_per_depth"])
    survivals: list[float] = []
    for drafted, accepted in zip(found["drafted_per_depth"], found["accepted_per_depth"], strict=True):
        nodes = max(1, round(width * drafted / found["verify_steps"]))
        survivals += [accepted / found["verify_steps"] / nodes] * nodes
    return tuple(survivals)


class StepPlanner:
    """Pure and cached; one serves all verifiers of a run."""

    def __init__(self, curve: Curve) -> None:
        self.cost = cost_of(curve)
        self.survivals = measured_survivals()
        self._decided = lru_cache(maxsize=100_000)(self._decide)

    def plan(self, decoding: int, drafted: int, prompt_rows: int, context: int, response_ms: float) -> Step:
        """A step of `decoding` requests, `drafted` of which have drafters that answer within `response_ms` on average,
        and `prompt_rows` tokens of prompts; `context`: tokens that are read."""
        bucket = context // CONTEXT_BUCKET
        response = round(response_ms / RESPONSE_BUCKET_MS)
        nodes, gained, wait_ms = self._decided(decoding, drafted, _rounded(prompt_rows), bucket, response)
        load = StepLoad(decoding + nodes + prompt_rows, max(1, decoding), context)
        tokens = 1.0 + gained / decoding if decoding else 0.0
        return Step(self.cost.ms(load) + wait_ms, tokens, nodes)

    def prefill_tokens_per_s(self, rows: int) -> float:
        """Of steps that compute prompts only."""
        return 1e3 * rows / self.cost.ms(StepLoad(rows, 1, 0))

    def _decide(
        self, decoding: int, drafted: int, prompt_rows: int, context: int, response: int
    ) -> tuple[int, float, float]:
        """Nodes verified, tokens gained with them, and the wait for proposals."""
        if not drafted:
            return 0, 0.0, 0.0
        load = StepLoad(decoding + prompt_rows, decoding, context * CONTEXT_BUCKET, drafting=True)
        offers = (Offer(self.survivals),) * drafted
        decision = decide(StepSnapshot(load, float(decoding), self.cost, MAX_NODES, offers))
        if not decision.num_nodes:
            return 0, 0.0, 0.0
        gained = decision.tokens - decoding
        late_ms = response * RESPONSE_BUCKET_MS - decision.ms
        wait_ms = 0.0
        if late_ms > 0.0:
            gain, nodes = gained / drafted, round(decision.num_nodes / drafted)
            pending = [Pending(gain, nodes, late_ms, late_ms / 4)] * drafted
            allowed = grace_ms(float(decoding), load, self.cost, pending, MAX_GRACE_MS)
            wait_ms = late_ms if allowed >= late_ms else 0.0
        on_time = min(1.0, (decision.ms + wait_ms) / max(response * RESPONSE_BUCKET_MS, 1e-9))
        return round(on_time * decision.num_nodes), on_time * gained, wait_ms


def _rounded(rows: int) -> int:
    """Up to the next power of two: enough to decide about a few nodes."""
    return 1 << (rows - 1).bit_length() if rows else 0
