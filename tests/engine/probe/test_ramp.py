"""The ramp benchmark on a tiny model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.ramp import Level, Loop, drive, levels_of, plot, summarize
from workers.core.errors import ConfigurationError
from workers.core.sampling_params import SpeculationMode
from workers.models.loader import load_model
from workers.probe.config import ProbeConfig, TreeConfig
from workers.probe.rig import open_rig


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


def test_a_falling_level_starts_when_the_load_has_fallen(lookup_config: Callable[..., ProbeConfig]) -> None:
    config = lookup_config(max_tokens=300)
    loaded = load_model(config.target)
    with open_rig(config, "lookup", config.proposers["lookup"], loaded, longest=4) as rig:
        loop = Loop(rig, config, [(5, 7, 9, 11)], SpeculationMode.OFF)
        loop.run(4, seconds=0.05)
        assert loop.running == 4
        assert loop.run(1, seconds=0.05) > 0
        assert loop.running <= 1
        loop.drain()


def test_an_unknown_proposer_is_told_which_there_are(lookup_config: Callable[..., ProbeConfig]) -> None:
    with pytest.raises(ConfigurationError, match="no proposer 'draft'; there are: lookup"):
        drive(lookup_config(), "draft", peak=1, seconds=1.0, rounds=1)
