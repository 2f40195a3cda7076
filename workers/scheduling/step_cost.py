"""What a step costs: a convex function of what it computes, fitted to measurements.

    step_ms = fixed + per row (dearer behind each knot) + per request + per 1024 tokens of context + while drafting

All coefficients are at least zero, so more work never costs less, and the cost of one more row never falls with the
number of rows. The last term is what drafting takes from the verifier where they share a machine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["ASSUMED_COST", "CostSample", "StepCost", "StepLoad", "fit_cost"]

KNOTS = (8, 32, 128, 512)
CONTEXT_UNIT = 1024
RIDGE = 1e-4  # in units of one sample whose error is 100 %
NUM_COEFFICIENTS = 2 + len(KNOTS) + 3


@dataclass(frozen=True)
class StepLoad:
    """What one step computes."""

    rows: int  # tokens fed to the model: roots, tree nodes, pieces of prompts
    requests: int
    context: int  # tokens whose K/V is read, of all requests together
    drafting: bool = False  # drafters work on these requests meanwhile

    def with_rows(self, more: int) -> "StepLoad":
        return replace(self, rows=self.rows + more)

    @property
    def features(self) -> tuple[float, ...]:
        bends = (max(0, self.rows - knot) for knot in KNOTS)
        return (1.0, self.rows, *bends, self.requests, self.context / CONTEXT_UNIT, float(self.drafting))


@dataclass(frozen=True)
class CostSample:
    """A measured step (or a belief about one, with a small weight)."""

    load: StepLoad
    ms: float
    weight: float = 1.0


@dataclass(frozen=True)
class StepCost:
    """Milliseconds per feature of `StepLoad`; all at least zero."""

    coefficients: tuple[float, ...]

    def ms(self, load: StepLoad) -> float:
        return sum(c * f for c, f in zip(self.coefficients, load.features, strict=True))

    def ms_by_rows(self, load: StepLoad, count: int) -> list[float]:
        """Cost with 0, 1, …, `count` rows more. [count + 1]."""
        rows = np.arange(load.rows, load.rows + count + 1, dtype=np.float64)
        per_row, bends = self.coefficients[1], self.coefficients[2 : 2 + len(KNOTS)]
        slope = per_row * (rows - load.rows)
        for knot, bend in zip(KNOTS, bends, strict=True):
            slope += bend * (np.maximum(0.0, rows - knot) - max(0, load.rows - knot))
        return list((self.ms(load) + slope).tolist())

    def scaled(self, factor: float) -> "StepCost":
        return StepCost(tuple(c * factor for c in self.coefficients))


def _assumed() -> StepCost:
    """A step of one row costs 10 ms, of which 3 % are the row's; behind 32 rows they cost twice that."""
    coefficients = [0.0] * NUM_COEFFICIENTS
    coefficients[0], coefficients[1], coefficients[3], coefficients[6] = 9.5, 0.3, 0.3, 0.2
    return StepCost(tuple(coefficients))


ASSUMED_COST = _assumed()
"""Before anything was measured. Its scale does not matter: the first measurements set it."""


def fit_cost(samples: Iterable[CostSample]) -> StepCost:
    """Least squares of relative errors under coefficients >= 0; needs one sample at least."""
    used: Sequence[CostSample] = [s for s in samples if s.ms > 0.0]
    weights = np.sqrt([s.weight for s in used])
    matrix = (
        np.array([s.load.features for s in used]) * (weights / [s.ms for s in used])[:, None]
    )  # [samples, features]
    norms = np.linalg.norm(matrix, axis=0)
    norms[norms == 0.0] = 1.0
    scaled = matrix / norms
    gram = scaled.T @ scaled + RIDGE * np.eye(matrix.shape[1])
    moments = scaled.T @ weights
    kept = list(range(matrix.shape[1]))
    solution = np.zeros(matrix.shape[1])
    while kept:
        values = np.linalg.solve(gram[np.ix_(kept, kept)], moments[kept])
        if values.min() >= 0.0:
            solution[kept] = values
            break
        kept.pop(int(values.argmin()))
    return StepCost(tuple((solution / norms).tolist()))
