"""Writes what the budget controller saw and decided, one JSON object a line; `benchmarks.replay_budget` reads it.

step, seconds       number of the step, and when it ended (the engine's clock)
snapshot            input of `workers.scheduling.allocation.decide`, null when nobody was asked
nodes               its decision
ms, wait_ms, draft_ms, emitted
                    what the step then took and yielded
predicted_ms, advantage, active, requests
                    the controller's view: cost of the chosen step, goodput with / without speculation, sessions
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers.scheduling.allocation import Offer, StepSnapshot
from workers.scheduling.controller import BudgetController, Choice
from workers.scheduling.step_cost import StepCost, StepLoad

__all__ = ["BudgetTrace", "snapshot_from_json"]

DIGITS = 6


class BudgetTrace:
    """Appends to `path` (`{pid}` in it is replaced); one thread writes."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.path = Path(path.replace("{pid}", str(os.getpid())))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8", buffering=1)
        self._clock = clock
        self._steps = 0

    def write(
        self,
        controller: BudgetController,
        choice: Choice | None,
        ms: float,
        wait_ms: float,
        draft_ms: float,
        emitted: int,
    ) -> None:
        """One step."""
        self._steps += 1
        record: dict[str, Any] = {
            "step": self._steps,
            "seconds": round(self._clock(), DIGITS),
            "snapshot": None if choice is None else asdict(choice.snapshot),
            "nodes": None if choice is None else choice.decision.nodes,
            "predicted_ms": None if choice is None else round(choice.decision.ms, DIGITS),
            "ms": round(ms, DIGITS),
            "wait_ms": round(wait_ms, DIGITS),
            "draft_ms": round(draft_ms, DIGITS),
            "emitted": emitted,
            "advantage": round(controller.evaluation.advantage, DIGITS),
            "active": controller.num_active,
            "requests": controller.num_sessions,
        }
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()


def snapshot_from_json(value: dict[str, Any]) -> StepSnapshot:
    """What `BudgetTrace` wrote as `snapshot`; numbers are kept exactly."""
    return StepSnapshot(
        load=StepLoad(**value["load"]),
        tokens=value["tokens"],
        cost=StepCost(tuple(value["cost"]["coefficients"])),
        max_nodes=value["max_nodes"],
        offers=tuple(Offer(tuple(o["survivals"]), o["forced"]) for o in value["offers"]),
    )
