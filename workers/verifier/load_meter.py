"""What autoscaler and dashboards want to know of a verifier: counters, and latencies of the last minute.

Written by the engine, read from any thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from workers.core.readings import Observations
from workers.core.request import FinishReason
from workers.core.sliding import SlidingDeltas, SlidingHistogram

__all__ = ["FAILED", "WINDOW_S", "LoadCounters", "LoadMeter"]

WINDOW_S = 60.0
SHARE = 0.95
FAILED = "error"


@dataclass
class LoadCounters:
    """Since the start; never reset."""

    arrived: int = 0
    finished: int = 0
    refused: int = 0  # because the queue was full
    demanded_nodes: int = 0  # draft nodes that steps had room for
    delivered_nodes: int = 0  # of these, there in time
    trees: int = 0  # verified
    accepted: int = 0  # draft tokens
    verified_nodes: int = 0  # nodes of these trees
    trees_by_position: list[int] = field(default_factory=list)  # [depth - 1]: trees that had a node at this depth
    accepted_by_position: list[int] = field(default_factory=list)  # of these, with an accepted one
    output_tokens: int = 0
    prompt_tokens: int = 0  # looked up in the prefix cache when a request was admitted first
    cached_prompt_tokens: int = 0  # of these, found
    ended_by: dict[str, int] = field(default_factory=lambda: dict.fromkeys([*FinishReason, FAILED], 0))
    steps: int = 0
    costed_steps: int = 0  # without prompts: what the cost model is about
    predicted_ms: float = 0.0  # of these
    measured_ms: float = 0.0  # of these, waiting and drafting in the verifier not included
    wait_ms: float = 0.0  # of all steps, for proposals
    draft_ms: float = 0.0  # of all steps, for drafting in the verifier itself

    def verified(self, depth: int, nodes: int, accepted: int) -> None:
        """One tree of `nodes` nodes down to `depth`, of which a path of `accepted` was kept."""
        self.trees += 1
        self.verified_nodes += nodes
        self.accepted += accepted
        grow = [0] * (depth - len(self.trees_by_position))
        self.accepted_by_position.extend(grow)  # first, so that readers find no shorter one
        self.trees_by_position.extend(grow)
        for position in range(depth):
            self.trees_by_position[position] += 1
            self.accepted_by_position[position] += position < accepted


class LoadMeter:
    def __init__(self, clock: Callable[[], float], window_s: float = WINDOW_S) -> None:
        """`clock`: the engine's, in seconds."""
        self.counters = LoadCounters()
        self.queue_s, self.ttft_s, self.itl_s = Observations(), Observations(), Observations()
        self._clock = clock
        self._ttft_ms = SlidingHistogram(window_s, clock)
        self._itl_ms = SlidingHistogram(window_s, clock)
        self._deltas = SlidingDeltas(window_s, clock)
        self._told_at: dict[int, float] = {}  # key of a running request: when its last tokens were told

    # The engine's thread

    def admitted(self, waited_s: float, prompt_tokens: int, cached_tokens: int) -> None:
        """A request runs for the first time."""
        self.queue_s.add(waited_s)
        self.counters.prompt_tokens += prompt_tokens
        self.counters.cached_prompt_tokens += cached_tokens

    def committed(self, key: int, arrived_at: float, tokens: int, tree_nodes: int, accepted: int, depth: int) -> None:
        """A step gave request `key` `tokens`; of a tree of `tree_nodes` down to `depth`, `accepted` were right."""
        now = self._clock()
        before = self._told_at.get(key)
        if before is None:
            self._ttft_ms.add((now - arrived_at) * 1e3)
            self.ttft_s.add(now - arrived_at)
        elif tokens:
            self._itl_ms.add((now - before) / tokens * 1e3)
            self.itl_s.add((now - before) / tokens)
        self._told_at[key] = now
        self.counters.output_tokens += tokens
        if tree_nodes:
            self.counters.verified(depth, tree_nodes, accepted)

    def ended(self, key: int, how: str = FAILED) -> None:
        """`how`: a finish reason; FAILED without one."""
        self.counters.finished += 1
        self.counters.ended_by[how] += 1
        self._told_at.pop(key, None)

    # Any thread

    def window(self, **more: float) -> dict[str, float]:
        """Counters, and `more` that only grow, over the window; latencies in ms, -1 where there was none."""
        counters = self.counters
        grown, _ = self._deltas.update(
            {
                "arrived": counters.arrived,
                "finished": counters.finished,
                "refused": counters.refused,
                "demanded_nodes": counters.demanded_nodes,
                "delivered_nodes": counters.delivered_nodes,
                "trees": counters.trees,
                "accepted": counters.accepted,
                **more,
            }
        )
        ttft_ms, itl_ms = self._ttft_ms.percentile(SHARE), self._itl_ms.percentile(SHARE)
        return {
            **{name: float(value) for name, value in grown.items()},
            "ttft_ms": -1.0 if ttft_ms is None else ttft_ms,
            "itl_ms": -1.0 if itl_ms is None else itl_ms,
        }
