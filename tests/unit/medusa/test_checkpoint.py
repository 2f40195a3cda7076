"""Folders of heads: vLLM's layout in and out, and what is said about those that are damaged or do not fit."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.fakes.engines import tiny_loaded
from tests.fakes.medusa_heads import heads_config, random_heads, save
from workers.core.errors import ConfigurationError, NotFoundError, OutriderError
from workers.medusa.checkpoint import HeadsCheckpoint
from workers.medusa.fitted import fit_heads
from workers.models.loaded import LoadedModel
from workers.models.packed import head_rows
from workers.models.tiny import build_tiny_model

Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


def changed(folder: Path, change: Change) -> str:
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    change(config, weights)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors")
    return str(folder)


@pytest.fixture
def shared(tmp_path: Path, loaded: LoadedModel) -> Path:
    return save(tmp_path / "heads", random_heads(heads_config(loaded, shared=True, reduced=100), loaded), loaded)


@pytest.mark.parametrize("kwargs", [{}, {"shared": True}, {"shared": True, "reduced": 100}, {"layers": 2}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_served_is_what_was_written(
    tiny_target: Path, tmp_path: Path, kwargs: dict[str, Any], dtype: str
) -> None:
    loaded = tiny_loaded(tiny_target, dtype)
    heads = random_heads(heads_config(loaded, **kwargs), loaded)
    fitted = fit_heads(HeadsCheckpoint.read(str(save(tmp_path / "h", heads, loaded))), loaded)
    hidden = torch.randn(5, loaded.hidden_size)
    expected = torch.stack([heads.logits(number, hidden) for number in range(3)], 1)
    assert torch.allclose(fitted(hidden), expected, atol=0.05)
    assert fitted.choices == heads.config.outrider.tree_choices


def test_the_layout_is_that_of_vllm(shared: Path) -> None:
    config, weights = json.loads((shared / "config.json").read_text()), load_file(shared / "model.safetensors")
    assert config["model_type"] == "medusa"
    assert config["architectures"] == ["MedusaModel"]
    wanted = {"num_heads": 3, "num_hidden_layers": 1, "truncated_vocab_size": 100, "original_lm_head": True}
    assert wanted.items() <= config.items()
    assert [k for k in config if "num" in k and ("heads" in k or "layers" in k)] == ["num_heads", "num_hidden_layers"]
    blocks = {f"blocks.{head}.layers.0.weight" for head in range(3)}
    assert set(weights) == {*blocks, "lm_head.weight", "token_map", "outrider.target_rows"}
    assert weights["lm_head.weight"].shape == (100, 64)
    assert weights["token_map"].dtype == torch.int64


def test_heads_written_by_others(tmp_path: Path, loaded: LoadedModel) -> None:
    """The names of the first Medusa checkpoints, with biases, in a .pt file, sizes left to the weights."""
    heads = random_heads(heads_config(loaded), loaded)
    size = loaded.hidden_size
    weights: dict[str, torch.Tensor] = {}
    for head in range(3):
        weights[f"{head}.0.linear.weight"] = heads.layers(head)[0].weight.detach()
        weights[f"{head}.0.linear.bias"] = torch.full((size,), 0.5)
        weights[f"{head}.1.weight"] = heads.head(head).weight.detach()
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 3, "medusa_num_layers": 1}))
    torch.save(weights, tmp_path / "medusa_lm_head.pt")
    checkpoint = HeadsCheckpoint.read(str(tmp_path))
    hidden = torch.randn(2, size)
    x = hidden + torch.nn.functional.silu(hidden @ heads.layers(1)[0].weight.T + 0.5)
    assert torch.allclose(fit_heads(checkpoint, loaded)(hidden)[:, 1], x @ heads.head(1).weight.T, atol=1e-3)


def test_a_shared_head_may_be_left_to_the_target(shared: Path, loaded: LoadedModel) -> None:
    hidden = torch.randn(2, loaded.hidden_size)
    before = fit_heads(HeadsCheckpoint.read(str(shared)), loaded)(hidden)
    ref = changed(shared, lambda _, weights: weights.pop("lm_head.weight"))
    assert torch.allclose(fit_heads(HeadsCheckpoint.read(ref), loaded)(hidden), before, atol=0.02)


def test_whole_heads_beside_a_token_map_are_cut(shared: Path, loaded: LoadedModel) -> None:
    hidden = torch.randn(2, loaded.hidden_size)
    before = fit_heads(HeadsCheckpoint.read(str(shared)), loaded)(hidden)
    ref = changed(shared, lambda _, weights: weights.update({"lm_head.weight": head_rows(loaded.lm_head)}))
    assert torch.allclose(fit_heads(HeadsCheckpoint.read(ref), loaded)(hidden), before, atol=0.02)


PROBLEMS: dict[str, tuple[Change, str]] = {
    "another method": (lambda c, _: c.update(model_type="eagle"), "model_type is 'eagle'"),
    "too many heads": (lambda c, _: c.update(num_heads=4), "4 heads of 1 .* blocks.3.layers.0.weight is missing"),
    "too few heads": (lambda c, _: c.update(num_heads=2), "blocks.2.layers.0.weight does not belong there"),
    "layers": (lambda c, _: c.update(num_hidden_layers=2), "2 residual layers.*blocks.0.layers.1.weight is missing"),
    "no heads": (lambda c, _: c.update(num_heads=0), "num_heads: .*greater than or equal to 1"),
    "partial": (lambda _, w: w.pop("blocks.1.layers.0.weight"), "blocks.1.layers.0.weight is missing"),
    "shape": (lambda _, w: w.update({"blocks.1.layers.0.weight": torch.zeros(3, 64)}), r"shape \[3, 64\]"),
    "hidden size": (lambda c, _: c.update(hidden_size=32), r"shape \[64, 64\], expected \[32, 32\]"),
    "no map": (lambda _, w: w.pop("token_map"), "truncated_vocab_size is 100, but the weights have no token_map"),
    "short map": (lambda _, w: w.update(token_map=torch.arange(99)), r"token_map has shape \[99\]"),
    "map twice": (lambda _, w: w.update(token_map=torch.zeros(100, dtype=torch.int64)), "names a token twice"),
    "rows": (lambda _, w: w.update({"lm_head.weight": torch.zeros(90, 64)}), r"lm_head.weight has shape \[90, 64\]"),
    "tree": (lambda c, _: c["outrider"].update(tree_choices=[[0, 0]]), "stands before its parent"),
    "map outside": (lambda _, w: w.update(token_map=torch.arange(500, 600)), "token 599.*ends at 511"),
    "vocabulary": (lambda c, _: c.update(vocab_size=32000), "for a vocabulary of 32000 tokens.*has 512"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_heads_that_are_wrong_are_refused(shared: Path, loaded: LoadedModel, problem: str) -> None:
    change, message = PROBLEMS[problem]
    ref = changed(shared, change)
    with pytest.raises(ConfigurationError, match=message):
        fit_heads(HeadsCheckpoint.read(ref), loaded)


def test_heads_of_another_model_are_refused(shared: Path, tmp_path: Path, loaded: LoadedModel) -> None:
    other = tiny_loaded(build_tiny_model(tmp_path / "other", seed=5))
    with pytest.raises(ConfigurationError, match=f"belong to another model.*{re.escape(loaded.name)}"):
        fit_heads(HeadsCheckpoint.read(str(shared)), other)
    ref = changed(shared, lambda _, weights: weights.pop("outrider.target_rows"))
    with pytest.raises(ConfigurationError, match="belong to another model"):
        fit_heads(HeadsCheckpoint.read(ref), other)
    larger = tiny_loaded(build_tiny_model(tmp_path / "larger", hidden_size=128))
    with pytest.raises(ConfigurationError, match=r"hidden size 64, .* has 128"):
        fit_heads(HeadsCheckpoint.read(str(shared)), larger)


@pytest.mark.parametrize("keep", [0, 5, 200, 20_000])
def test_files_that_were_cut_off(shared: Path, keep: int) -> None:
    path = shared / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigurationError, match=r"model\.safetensors is damaged or was cut off"):
        HeadsCheckpoint.read(str(shared))


def test_what_is_not_there(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no config\.json"):
        HeadsCheckpoint.read(str(tmp_path / "nowhere"))
    (shared / "model.safetensors").rename(shared / "weights.pt")
    with pytest.raises(OutriderError, match="damaged"):
        HeadsCheckpoint.read(str(shared))
    (shared / "weights.pt").unlink()
    with pytest.raises(NotFoundError, match="no weights"):
        HeadsCheckpoint.read(str(shared))
    (shared / "config.json").write_text("{")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        HeadsCheckpoint.read(str(shared))
