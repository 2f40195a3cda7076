"""The ramp benchmark on a tiny model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.ramp import Level, drive, levels_of, plot, summarize
from workers.probe.config import ProbeConfig, TreeConfig


@pytest.mark.parametrize(("peak", "levels"), [(1, [1]), (4, [1, 2, 4, 2, 1]), (6, [1, 2, 4, 6, 4, 2, 1])])
def test_levels_rise_to_the_peak_and_fall(peak: int, levels: list[int]) -> None:
    assert levels_of(peak) == levels


def test_auto_is_compared_with_the_better_neighbour() -> None:
    driven = [Level(mode, True, 1, rate) for mode, rate in (("off", 10.0), ("on", 20.0), ("auto", 19.0))]
    driven += [Level(mode, True, 1, rate) for mode, rate in (("off", 10.0), ("on", 20.0), ("auto", 21.0))]
    driven += [Level(mode, False, 1, rate) for mode, rate in (("off", 8.0), ("on", 4.0), ("auto", 4.0))]
    assert [(row["rising"], row["auto_to_better"]) for row in summarize(driven)] == [(True, 1.0), (False, 0.5)]


def test_a_ramp_drives_every_mode_through_every_level(
    lookup_config: Callable[..., ProbeConfig], tmp_path: Path
) -> None:
    config = lookup_config(
        max_tokens=8,
        trees=(TreeConfig(depth=2, nodes=2),),
        concurrency=(2,),
    )
    driven = drive(config, "lookup", peak=2, seconds=1.5, rounds=1)
    expected = [(mode, requests) for mode in ("off", "on", "auto") for requests in (1, 2, 1)]
    assert [(level.mode, level.requests) for level in driven] == expected
    assert all(level.tokens_per_s > 0 for level in driven)
    plot(summarize(driven), tmp_path / "ramp.png")
    assert (tmp_path / "ramp.png").stat().st_size > 5000
