"""Every way to name a model, and what is said when it cannot be loaded."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError, NotFoundError, OutriderError
from workers.models.loader import load_model


def load(folder: Path | str, **settings: Any) -> Any:
    return load_model(ModelConfig.model_validate({"model": str(folder), "dtype": "float32", **settings}))


def with_config(folder: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(target, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_facts_of_a_loaded_model(tiny_target: Path) -> None:
    loaded = load(tiny_target)
    assert (loaded.vocab_size, loaded.num_layers, loaded.num_heads, loaded.num_kv_heads) == (512, 3, 4, 2)
    assert (loaded.context_length, loaded.dtype) == (512, "float32")
    assert loaded.eos_token_ids


def test_the_fingerprint_follows_weights_layers_and_arithmetic_but_not_the_folder(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_target, copy)
    assert load(tiny_target).fingerprint == load(copy).fingerprint
    others = {
        load(tiny_target).fingerprint,
        load(tiny_target, layers=(0, 2)).fingerprint,
        load(tiny_target, dtype="float16").fingerprint,
        load(tiny_draft).fingerprint,
    }
    assert len(others) == 4


def test_a_draft_can_be_made_of_the_targets_layers(tiny_target: Path) -> None:
    loaded = load(tiny_target, layers=(0, 2))
    assert loaded.num_layers == 2
    assert loaded.tokenizer_hash == load(tiny_target).tokenizer_hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (2, 1)}, "ascending indices from 0 to 2"),
        ({"layers": (0, 7)}, "ascending indices from 0 to 2"),
        ({"tensor_parallel_size": 3}, r"does not divide the 4 attention heads .*allowed: \[1, 2\]"),
        ({"tensor_parallel_size": 4}, r"does not divide the 2 KV heads .*allowed: \[1, 2\]"),
        ({"tensor_parallel_size": 2, "device": "cuda:1"}, "names one device for all of 2 ranks"),
        ({"device": "cuda"}, "no CUDA device"),
    ],
)
def test_settings_that_cannot_work(tiny_target: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(tiny_target, **settings)


def test_models_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such GGUF file"):
        load(tmp_path / "missing.gguf")
    with pytest.raises(NotFoundError, match=r"no config\.json"):
        load(tmp_path)
    with pytest.raises(OutriderError, match="no such folder"):
        load(tmp_path / "nowhere")


def test_models_that_would_be_wrong_are_refused(tiny_target: Path, tmp_path: Path) -> None:
    windowed = with_config(
        tmp_path / "windowed",
        tiny_target,
        architectures=["MistralForCausalLM"],
        model_type="mistral",
        sliding_window=64,
    )
    with pytest.raises(ConfigurationError, match="sliding window of 64"):
        load(windowed)
    assert load(windowed, max_context_length=64).context_length == 64


def test_angles_that_change_with_the_longest_position_are_refused(tiny_target: Path, tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 64,
    }
    longrope = with_config(tmp_path / "longrope", tiny_target, rope_parameters=rope)
    with pytest.raises(ConfigurationError, match=r"longrope.* max_context_length to at most 64"):
        load(longrope)
    assert load(longrope, max_context_length=64).context_length == 64


def with_weights(folder: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    shutil.copytree(target, folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.pop("model.layers.1.mlp.up_proj.weight"),
            r"is not whole: it has no model\.layers\.1\.mlp\.up_proj",
        ),
        (lambda w: w.update({NORM: w[NORM][:-1].clone()}), "its weights cannot be read"),
        (lambda w: w.update({NORM: w[NORM] * math.nan}), "no finite logits"),
    ],
    ids=["missing", "of another size", "NaN"],
)
def test_weights_that_are_not_whole(
    tiny_target: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(with_weights(tmp_path / "broken", tiny_target, change))


def test_weights_that_were_cut_off(tiny_target: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_target, tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ConfigurationError, match="its weights cannot be read"):
        load(tmp_path / "cut")


def test_threads_and_context_can_be_limited(tiny_target: Path) -> None:
    assert load(tiny_target, max_context_length=128, num_threads=1).context_length == 128
    with pytest.raises(ConfigurationError, match=r"max_context_length 99999 is above the .* positions of .*; at most"):
        load(tiny_target, max_context_length=99999)
