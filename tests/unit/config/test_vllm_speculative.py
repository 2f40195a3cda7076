"""vLLM's speculative config and ours: there and back, and what gets lost is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

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
        (
            {"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 3},
            r"target\.config\.ngram: prompt_lookup_min \(5\) must not exceed prompt_lookup_max \(3\)",
        ),
        ({"method": "ngram", "prompt_lookup_min": 0}, r"prompt_lookup_min: .* greater than or equal to 1 \(got 0\)"),
        ({"method": "medusa", "model": 3}, r"target\.config\.medusa\.model: .*string \(got 3\)"),
        ({"method": "draft_model", "model": "d", "max_model_len": 2}, r"draft\.config\.model\.max_context_length: "),
        ({1: 2}, "1: unknown key"),
        ({"method": "x" * 9000}, r"^method 'x+\.\.\.x+' has no counterpart"),
        ({"method": "ngram", "num_speculative_tokens": True}, "num_speculative_tokens: True is not between 1 and 64"),
        ({"method": "ngram", "prompt_lookup_min": True}, "prompt_lookup_min: a number is needed, not true"),
        ({"\x1b[31m": 1}, r"^\\x1b\[31m: unknown key"),
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
    assert "to add: target.config.model" in result.stderr
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["target"]["config"]["medusa"] == {"model": "heads"}
    path = tmp_path / "ours.yaml"
    path.write_text(result.stdout)
    back = runner.invoke(app, ["convert", "speculative-config", str(path), "--reverse"])
    assert json.loads(back.stdout) == BOTH_WAYS[1]
    assert "no counterpart" in back.stderr
    inline = runner.invoke(app, ["convert", "speculative-config", path.read_text(), "--reverse"])
    assert inline.stdout == back.stdout
    whole = runner.invoke(app, ["convert", "speculative-config", "examples/smollm2.yaml", "--reverse"])
    assert json.loads(whole.stdout)["method"] == "draft_model"
    for wrong in ("nowhere.json", "[1]", '{"method": "eagle"}'):
        assert runner.invoke(app, ["convert", "speculative-config", wrong]).exit_code == 2


OURS = """
import_path: {0}
args:
  model_name: m
  target: {{config: {{model: {{model: t}}, method: ngram, ngram: {{prompt_lookup_max: {1}}}}}}}
"""


def reverse(tmp_path: Path, text: str) -> Result:
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    return CliRunner().invoke(app, ["convert", "speculative-config", str(path), "--reverse"])


def test_the_application_of_ours_is_taken_wherever_it_stands(tmp_path: Path) -> None:
    ours, other = OURS.format("cluster.app:build", 6), OURS.format("other:app", 9)
    for applications in ([ours, other], [other, ours]):
        result = reverse(tmp_path, yaml.safe_dump({"applications": [yaml.safe_load(one) for one in applications]}))
        assert json.loads(result.stdout)["prompt_lookup_max"] == 6
    result = reverse(tmp_path, yaml.safe_dump({"applications": [yaml.safe_load(other)]}))
    assert result.exit_code == 2
    assert "exactly one needs `import_path: cluster.app:build`" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("applications: null\n", "there is no `target` in it"),
        ("target: {config: }\n", "draft: method draft_model needs the settings of the draft pool"),
        ("target: {config: 3}\n", "target.config: a mapping of settings is expected (got 3)"),
        ("target: {config: }\ndraft: x\n", "draft: a mapping of settings is expected (got 'x')"),
        ("target: {config: }\ndraft: {config: }\n", "draft.config.model: Field required"),
        ("target: {config: {method: ngram, method: medusa}}\n", "the key 'method' is given twice"),
    ],
)
def test_files_that_cannot_be_turned_back(tmp_path: Path, text: str, said: str) -> None:
    result = reverse(tmp_path, text)
    assert result.exit_code == 2
    assert said in result.stderr


def test_json_that_gives_a_key_twice_is_refused() -> None:
    result = CliRunner().invoke(app, ["convert", "speculative-config", '{"method": "ngram", "method": "medusa"}'])
    assert result.exit_code == 2
    assert "the text: is not valid YAML: the key 'method' is given twice" in result.stderr
