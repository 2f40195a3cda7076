"""What an autoscaler wants to know of a verifier: counters, and latencies of the last minute.

Written by the engine, read from any thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

from workers.core.sliding import SlidingDeltas, SlidingHistogram

__all__ = ["WINDOW_S", "LoadCounters", "LoadMeter"]

WINDOW_S = 60.0
SHARE = 0.95


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


class LoadMeter:
    def __init__(self, clock: Callable[[], float], window_s: float = WINDOW_S) -> None:
        """`clock`: the engine's, in seconds."""
        self.counters = LoadCounters()
        self._clock = clock
        self._ttft_ms = SlidingHistogram(window_s, clock)
        self._itl_ms = SlidingHistogram(window_s, clock)
        self._deltas = SlidingDeltas(window_s, clock)
        self._told_at: dict[int, float] = {}  # key of a running request: when its last tokens were told

    # The engine's thread

    def committed(self, key: int, arrived_at: float, tokens: int, tree_nodes: int, accepted: int) -> None:
        """A step gave request `key` so many `tokens`; of a tree of `tree_nodes`, `accepted` were right."""
        now = self._clock()
        before = self._told_at.get(key)
        if before is None:
            self._ttft_ms.add((now - arrived_at) * 1e3)
        elif tokens:
            self._itl_ms.add((now - before) / tokens * 1e3)
        self._told_at[key] = now
        if tree_nodes:
            self.counters.trees += 1
            self.counters.accepted += accepted

    def ended(self, key: int) -> None:
        """Finished, failed or cancelled."""
        self.counters.finished += 1
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
