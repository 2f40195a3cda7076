"""Steps down that had to be taken back, and what is remembered of them."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cluster.autoscaling.snapshot import PoolState, PoolView
from cluster.autoscaling.steps import take_step
from cluster.config.autoscaling import AutoscalingSettings

HOUR_S = 3600


@dataclass
class Pool:
    """`wants` lets so many seconds pass, in which so many replicas are asked for."""

    target: int = 16
    down: dict[str, Any] = field(default_factory=dict)
    up: dict[str, Any] = field(default_factory=dict)
    state: PoolState = field(default_factory=PoolState)
    now_s: float = 0.0
    moves: list[tuple[float, int]] = field(default_factory=list)

    def wants(self, wish: float, seconds: int) -> "Pool":
        scaling = AutoscalingSettings.model_validate({"verifiers": {"down": self.down, "up": self.up}}).verifiers
        for _ in range(seconds):
            self.now_s += 1
            step = take_step(
                PoolView(self.target, self.target, 1, 100, ()), self.state, scaling, wish, wish, self.now_s
            )
            if step.replicas != self.target:
                self.moves.append((self.now_s, step.replicas))
            self.target, self.state = step.replicas, step.state
        return self

    def steps_down(self) -> list[float]:
        before, found = 16, []
        for at_s, target in self.moves:
            if target < before:
                found.append(at_s)
            before = target
        return found


def swing(pool: Pool, low: float, seconds: int = 400) -> None:
    """A load that looks small enough for a step down, and asks for all 16 as soon as that is taken."""
    steps = len(pool.steps_down())
    for _ in range(2 * HOUR_S):
        pool.wants(low, 1)
        if len(pool.steps_down()) > steps:
            break
    pool.wants(16.0, seconds)


def test_the_wait_doubles_up_to_its_bound() -> None:
    pool = Pool()
    for _ in range(8):
        swing(pool, 10.5)
    steps = pool.steps_down()
    pauses = [b - a for a, b in pairwise(steps)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1000 < HOUR_S <= pauses[-1] < 1.2 * HOUR_S


def test_a_smaller_load_is_believed_at_once() -> None:
    """A quiet night after swings in the evening: the floor is reached as if there had been none."""
    calm, pool = Pool(), Pool()
    for _ in range(5):
        swing(pool, 10.5)
    begun = pool.now_s
    for one in (calm, pool):
        one.wants(0.5, 2 * HOUR_S)
        assert one.target == 1
    assert pool.moves[-1][0] - begun == calm.moves[-1][0]


def test_several_steps_down_that_are_taken_back_count_once_however_many_steps_up_that_takes() -> None:
    for up in ({}, {"max_replicas": 1, "max_percent": 0}):
        pool = Pool(up=up).wants(8.0, 1000)
        assert pool.target < 13
        pool.wants(16.0, 1000)
        assert pool.target >= 15  # 16 lies within the tolerance of 15
        assert pool.state.doubt is not None
        assert pool.state.doubt.times == 1


def test_a_larger_load_than_before_is_no_reason_for_doubt() -> None:
    pool = Pool().wants(10.5, 350)
    assert pool.target < 16
    pool.wants(24.0, 100)
    assert pool.state.doubt is None


def test_what_lasted_longer_than_any_wait_is_no_reason_either() -> None:
    pool = Pool()
    swing(pool, 10.5)
    assert pool.state.doubt is not None
    pool.wants(10.5, 3 * HOUR_S)
    assert pool.target < 16
    pool.wants(16.0, 100)
    assert pool.state.doubt is None


def test_short_windows_end_swings_too() -> None:
    """The load shows itself only 200 s after each step down, long after two windows."""
    pool = Pool(down={"window_s": 30, "period_s": 30})
    for _ in range(200):
        swing(pool, 10.5, seconds=1)
        pool.wants(10.5, 200).wants(16.0, 60)
        if pool.now_s > 8 * HOUR_S:
            break
    assert len(pool.steps_down()) < 30
