"""A whole probe on a tiny model, with a proposer that needs no process of its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError, NotFoundError
from workers.core.sampling_params import SpeculationMode
from workers.models.loader import load_model
from workers.probe.config import ProbeConfig, ProposerConfig, TreeConfig
from workers.probe.findings import Tree
from workers.probe.measure import probe
from workers.probe.plot import plot_findings
from workers.probe.rig import open_rig
from workers.probe.verdict import judge


def test_everything_is_measured(lookup_config: Callable[..., ProbeConfig], tmp_path: Path) -> None:
    config = lookup_config(
        max_tokens=24,
        trees=(TreeConfig(depth=2, nodes=2), TreeConfig(depth=3, width=2, nodes=5)),
        temperatures=(0.0, 0.9),
        concurrency=(1, 3),
        rounds=1,
    )
    told: list[str] = []
    findings = probe(config, told.append)
    assert [(a.tree, a.temperature) for a in findings.acceptances] == [
        (Tree(2, 1, 2), 0.0),
        (Tree(2, 1, 2), 0.9),
        (Tree(3, 2, 5), 0.0),
        (Tree(3, 2, 5), 0.9),
    ]
    for acceptance in findings.acceptances:
        assert acceptance.output_tokens == 3 * 24
        assert 1.0 <= acceptance.length <= acceptance.tree.depth + 1
        assert acceptance.nodes_per_step <= acceptance.tree.nodes
        assert all(0.0 <= rate <= 1.0 for rate in acceptance.rates)
    greedy = findings.acceptances[0]
    assert greedy.accepted_per_depth[0] > 0, "a greedy tiny model repeats itself, and lookup finds that"
    assert findings.cost.verify_ms[1] > 0
    assert [(s.temperature, s.concurrency) for s in findings.speeds] == [(0.0, 1), (0.0, 3), (0.9, 1), (0.9, 3)]
    assert all(min(*s.off_tokens_per_s, *s.on_tokens_per_s, *s.auto_tokens_per_s) > 0 for s in findings.speeds)
    assert all(s.predicted > 0 for s in findings.speeds)
    assert len(judge(findings)) == 4
    assert any("acceptance" in line for line in told)
    plot_findings(findings, tmp_path / "probe.png")
    assert (tmp_path / "probe.png").stat().st_size > 5000


@pytest.fixture
def brief_target(tiny_target: Path, tmp_path: Path) -> Path:
    """A target whose answers end after a few tokens: every other token ends one."""
    folder = shutil.copytree(tiny_target, tmp_path / "brief")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": [*range(2, 512, 2)]}))
    return folder


def test_acceptance_is_measured_up_to_the_end_of_an_answer(
    lookup_config: Callable[..., ProbeConfig], brief_target: Path
) -> None:
    config = lookup_config(max_tokens=40, temperatures=(0.9,), concurrency=(1,), rounds=1).model_copy(
        update={"target": ModelConfig(model=str(brief_target), dtype="float32")}
    )
    assert all(acceptance.output_tokens < 3 * 40 for acceptance in probe(config).acceptances)


@pytest.mark.parametrize("equal_work", [False, True])
def test_only_equal_work_goes_on_behind_the_end(
    lookup_config: Callable[..., ProbeConfig], brief_target: Path, equal_work: bool
) -> None:
    config, tree = lookup_config(), Tree(2, 1, 2)
    loaded = load_model(ModelConfig(model=str(brief_target), dtype="float32"))
    with open_rig(config, "lookup", config.proposers["lookup"], loaded, longest=4) as rig:
        request = rig.request(
            0, (5, 7, 9, 11), SpeculationMode.ON, tree, temperature=0.9, max_tokens=40, equal_work=equal_work
        )
        (answered,) = rig.run([request], 1)
    assert (len(answered.token_ids) == 40) is equal_work


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "draft_model"}, "draft_model needs `drafter`"),
        ({"method": "medusa"}, "medusa needs `medusa.model`"),
        ({"method": "layerskip"}, "layerskip needs `layerskip.exit_layer`"),
        ({"method": "ngram", "ngram": {"combine": True}}, "ngram.combine unites prompt lookup with another method"),
    ],
)
def test_a_proposer_needs_the_settings_of_its_method(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProposerConfig.model_validate(settings)


def test_every_proposer_is_started_before_anything_is_measured(lookup_config: Callable[..., ProbeConfig]) -> None:
    config = lookup_config()
    heads = ProposerConfig.model_validate({"method": "medusa", "medusa": {"model": "nowhere/heads"}})
    told: list[str] = []
    with pytest.raises(NotFoundError, match="nowhere/heads"):
        probe(config.model_copy(update={"proposers": {**config.proposers, "heads": heads}}), told.append)
    assert told == ["loading the target", "lookup: does it start?", "heads: does it start?"]


def test_prompts_that_cannot_be_read_are_named(tiny_target: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        probe(
            ProbeConfig(
                target=ModelConfig(model=str(tiny_target)),
                proposers={"lookup": ProposerConfig(method="ngram")},
                prompts=tmp_path / "none.jsonl",
            )
        )


def test_prompts_that_are_too_long_cost_no_measurement(lookup_config: Callable[..., ProbeConfig]) -> None:
    told: list[str] = []
    with pytest.raises(
        ConfigurationError, match=r"longest prompt has \d+ tokens; with max_tokens 510 .* holds \(512\)"
    ):
        probe(lookup_config(max_tokens=510), told.append)
    assert told == ["loading the target"]
