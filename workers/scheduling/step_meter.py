"""Keeps the cost of a step up to date while steps are measured.

Measurements of like steps share a bucket, and a bucket counts with its median: a machine that is busy for a moment
moves no median. The start-up profile gives the shape where nothing was measured since, at today's scale.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from workers.scheduling.step_cost import ASSUMED_COST, CostSample, StepCost, StepLoad, fit_cost

__all__ = ["StepMeter"]

BUCKET_VALUES = 15
MAX_BUCKETS = 64
REFIT_EVERY = 32  # steps; the first ones are fitted at once
FIRST_FITS = (1, 2, 4, 8, 16)
BELIEF = 0.1  # weight of a profiled step against the median of a full bucket
STEPS_PER_OCTAVE = 6  # buckets for each doubling of rows, requests and context
_ASSUMED_ROWS = (1, 5, 9, 17, 33, 65, 129, 257, 513)

Key = tuple[int, int, int, bool]


@dataclass
class _Bucket:
    load: StepLoad
    values: deque[float] = field(default_factory=lambda: deque(maxlen=BUCKET_VALUES))


class StepMeter:
    """`record` what was measured, read `cost`."""

    def __init__(self, profile: Sequence[CostSample] = ()) -> None:
        self._profile = list(profile) or [
            CostSample(load, ASSUMED_COST.ms(load))
            for load in (StepLoad(rows, max(1, rows // share), 0) for rows in _ASSUMED_ROWS for share in (1, 8))
        ]
        self._shape = fit_cost(self._profile)
        self._buckets: OrderedDict[Key, _Bucket] = OrderedDict()
        self._since_fit = 0
        self._num_recorded = 0
        self.cost: StepCost = self._shape

    def record(self, load: StepLoad, ms: float) -> None:
        """Count one measured step."""
        key = (_octave(load.rows), _octave(load.requests), _octave(1 + load.context // 256), load.drafting)
        bucket = self._buckets.setdefault(key, _Bucket(load))
        bucket.load = load
        bucket.values.append(ms)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        self._num_recorded += 1
        self._since_fit += 1
        if self._since_fit >= REFIT_EVERY or self._num_recorded in FIRST_FITS:
            self._refit()

    def _refit(self) -> None:
        self._since_fit = 0
        measured = [
            CostSample(bucket.load, median(bucket.values), len(bucket.values) / BUCKET_VALUES)
            for bucket in self._buckets.values()
        ]
        plain = [sample for sample in measured if not sample.load.drafting] or measured
        scale = median(sample.ms / max(self._shape.ms(sample.load), 1e-9) for sample in plain)
        believed = [CostSample(s.load, s.ms * scale, BELIEF) for s in self._profile]
        self.cost = fit_cost([*believed, *measured])


def _octave(number: int) -> int:
    return number if number <= 4 else round(STEPS_PER_OCTAVE * math.log2(number))
