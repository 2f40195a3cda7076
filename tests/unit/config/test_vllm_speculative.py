"""vLLM's speculative config and ours: there and back, and what gets lost is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.config.pools import DrafterPool, VerifierPool
from cluster.config.vllm_speculative import from_vllm, to_vllm
from workers.core.config import DrafterConfig, VerifierConfig
from workers.core.errors import ConfigurationError

TARGET = {"model": {"model": "target"}}
BOTH_WAYS: list[dict[str, Any]] = [
    {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    {"method": "medusa", "num_speculative_tokens": 3, "model": "heads"},
    {"method": "draft_model", "num_speculative_tokens": 20, "model": "draft", "draft_tensor_parallel_size": 1},
    {
        "method": "draft_model",
        "num_speculative_tokens": 5,
        "model": "org/draft",
        "draft_tensor_parallel_size": 2,
        "max_model_len": 2048,
        "rejection_sample_method": "standard",
        "draft_sample_method": "probabilistic",
    },
]


def ours(settings: dict[str, Any]) -> tuple[VerifierConfig, DrafterConfig | None]:
    """Validated as the application would."""
    target = VerifierPool.model_validate({"config": {**TARGET, **settings["target"]["config"]}})
    draft = DrafterPool.model_validate(settings["draft"]) if "draft" in settings else None
    return target.config, draft.config if draft else None


@pytest.mark.parametrize("given", BOTH_WAYS, ids=lambda g: g["method"])
def test_there_and_back(given: dict[str, Any]) -> None:
    there = from_vllm(given)
    assert there.lost == []
    assert to_vllm(*ours(there.settings)).settings == given


def test_what_vllm_fills_in_is_written_down() -> None:
    assert from_vllm({"method": "ngram", "prompt_lookup_max": 3}).settings["target"]["config"]["ngram"] == {
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 3,
    }
    assert from_vllm({"method": "ngram"}).settings["target"]["config"]["ngram"]["prompt_lookup_max"] == 5


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"quantization": "fp8"}, "quantization"),
        ({"disable_padded_drafter_batch": True}, "disable_padded_drafter_batch"),
        ({"rejection_sample_method": "synthetic"}, "rejection_sample_method synthetic"),
        ({"draft_sample_method": "greedy"}, "draft_sample_method greedy"),
    ],
)
def test_what_has_no_counterpart_is_named(more: dict[str, Any], named: str) -> None:
    (line,) = from_vllm({"method": "draft_model", "model": "d", **more}).lost
    assert line.startswith(named)
    assert from_vllm({"method": "draft_model", "model": "d", "quantization": None}).lost == []


def test_a_method_that_is_not_given_is_assumed_aloud() -> None:
    found = from_vllm({"model": "d", "num_speculative_tokens": 2})
    assert found.settings["draft"]["config"]["model"]["model"] == "d"
    assert "draft_model is assumed" in found.lost[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"method": "eagle3", "model": "e"},
            "method 'eagle3' has no counterpart; these have: draft_model, medusa, ngram",
        ),
        ({"method": "medusa"}, "model: method medusa needs one"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens: 0 is not between 1 and 64"),
        ({"method": "ngram", "prompt_lookup_maxx": 3}, "did you mean prompt_lookup_max"),
    ],
)
def test_bad_input(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        from_vllm(given)


def test_what_vllm_cannot_say_is_named() -> None:
    target = VerifierConfig.model_validate({**TARGET, "speculation": {"max_grace_ms": 5.0}})
    draft = DrafterConfig.model_validate({"model": {"model": "d", "layers": [0, 1]}, "grow_ahead": 2})
    lost = "\n".join(to_vllm(target, draft).lost)
    for name in ("max_width", "default_rule coupled", "speculation.max_grace_ms", "model.layers", "config.grow_ahead"):
        assert name in lost
    with pytest.raises(ConfigurationError, match="method none has no counterpart"):
        to_vllm(VerifierConfig.model_validate({**TARGET, "method": "none"}), None)


def test_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["convert", "speculative-config", json.dumps(BOTH_WAYS[1])])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["target"]["config"]["medusa"] == {"model": "heads"}
    path = tmp_path / "ours.yaml"
    path.write_text(result.stdout)
    back = runner.invoke(app, ["convert", "speculative-config", str(path), "--reverse"])
    assert json.loads(back.stdout) == BOTH_WAYS[1]
    assert "no counterpart" in back.stderr
    whole = runner.invoke(app, ["convert", "speculative-config", "examples/smollm2.yaml", "--reverse"])
    assert json.loads(whole.stdout)["method"] == "draft_model"
    for wrong in ("nowhere.json", "[1]", '{"method": "eagle"}'):
        assert runner.invoke(app, ["convert", "speculative-config", wrong]).exit_code == 2
