"""`outrider train layerskip`: the recipe's numbers, resumption, plain folders, and what a user may get wrong."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.fakes.answers import tiny_answers
from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError, NotFoundError
from workers.models.export import save_model
from workers.models.loader import load_model
from workers.models.tiny import TRAINING_TEXT
from workers.text.tokenizer import Tokenizer
from workers.training.layerskip.config import LayerSkipTrainingConfig, LoraConfig, Recipe
from workers.training.layerskip.schedule import dropout_rates, exit_weights
from workers.training.layerskip.texts import read_texts
from workers.training.layerskip.train import train_layerskip
from workers.training.optimizer_config import OptimizerConfig
from workers.training.small_model import EARLY_EXITS

LAYERS, STEPS = 8, 100


def test_layer_dropout_grows_with_depth_and_time() -> None:
    rates = dropout_rates(Recipe(layer_dropout=0.2), LAYERS, 0, STEPS)
    assert rates[0] == 0.0
    assert rates[-1] == pytest.approx(0.2)
    increases = [b - a for a, b in pairwise(rates)]
    assert increases[0] > 0.0
    assert increases == sorted(increases), "each layer adds more than the one before"
    scratch = Recipe(layer_dropout=0.2, dropout_grows=True)
    assert set(dropout_rates(scratch, LAYERS, 0, STEPS)) == {0.0}
    assert dropout_rates(scratch, LAYERS, STEPS - 1, STEPS) == pytest.approx(rates)


def test_exit_weights_follow_the_paper() -> None:
    """e(l) = scale * (0 + 1 + ... + l), and L - 1 + scale * (0 + ... + L - 2) for the last; normalised."""
    weights = exit_weights(Recipe(early_exit_scale=0.5, curriculum="none"), 4, 0, STEPS)
    expected = torch.tensor([0.0, 0.5, 1.5, 3 + 1.5])
    assert weights == pytest.approx((expected / expected.sum()).tolist())
    assert exit_weights(Recipe(early_exit_scale=0.0), 4, 3, STEPS) == [0.0, 0.0, 0.0, 1.0]


def test_the_rotational_curriculum_takes_turns() -> None:
    recipe = Recipe(curriculum="rotational", rotation=4, early_exit_scale=1.0)
    for step in range(8):
        weights = exit_weights(recipe, LAYERS, step, STEPS)
        active = {layer for layer, weight in enumerate(weights) if weight > 0}
        assert active == {layer for layer in range(1, LAYERS) if layer % 4 == step % 4} | {LAYERS - 1}
        assert sum(weights) == pytest.approx(1.0)


def test_the_gradual_curriculum_comes_from_the_last_layer() -> None:
    recipe = Recipe(curriculum="gradual", early_exit_scale=1.0)
    counts = [sum(w > 0 for w in exit_weights(recipe, LAYERS, step, STEPS)) for step in range(STEPS)]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[STEPS // 2] == LAYERS - 1, "by half of the run all layers but the first, whose weight is 0"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join([TRAINING_TEXT.replace("\n\n", "\n"), *TRAINING_TEXT.split(". ")]))
    return path


def config(model: Path, texts: Path, output: Path, lora: bool = False) -> LayerSkipTrainingConfig:
    return LayerSkipTrainingConfig(
        model=str(model),
        data=texts,
        output=output,
        sequence_length=24,
        recipe=Recipe(layer_dropout=0.4, early_exit_scale=1.0, rotation=2),
        lora=LoraConfig(rank=4) if lora else None,
        optimizer=OptimizerConfig(
            max_steps=6, batch_size=2, learning_rate=1e-3, warmup_steps=1, save_every=3, evaluate_every=3
        ),
    )


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_run_that_was_interrupted_ends_like_one_that_was_not(
    tiny_target: Path, texts: Path, tmp_path: Path, lora: bool
) -> None:
    settings = config(tiny_target, texts, tmp_path / "out", lora)
    metrics = train_layerskip(settings)
    whole = load_file(settings.output / "model.safetensors")
    shutil.rmtree(settings.output)
    shutil.rmtree(tmp_path / "out.checkpoints" / "checkpoint-6")
    assert train_layerskip(settings) == metrics
    resumed = load_file(settings.output / "model.safetensors")
    start = load_file(tiny_target / "model.safetensors")
    assert set(resumed) == set(whole) == set(start), "a plain folder: the same weights, whatever trained them"
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert any(not torch.equal(resumed[name], start[name]) for name in whole)


def test_the_result_is_a_plain_folder(tiny_target: Path, texts: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, texts, tmp_path / "out")
    metrics = train_layerskip(settings)
    assert {"loss", "agreement_of_layer_1", "agreement_of_layer_2"} <= set(metrics)
    loaded, start = (
        load_model(ModelConfig(model=str(folder), dtype="float32")) for folder in (settings.output, tiny_target)
    )
    assert loaded.tokenizer_hash == start.tokenizer_hash
    assert loaded.eos_token_ids == start.eos_token_ids
    assert loaded.fingerprint != start.fingerprint
    assert {"provenance.json", "training.png"} <= {path.name for path in settings.output.iterdir()}
    other = settings.model_copy(update={"sequence_length": 16})
    with pytest.raises(ConfigurationError, match="holds checkpoints of a run with other settings"):
        train_layerskip(other)


@pytest.mark.parametrize("lora", [False, True])
def test_weights_are_stored_as_they_were(tiny_target: Path, texts: Path, tmp_path: Path, lora: bool) -> None:
    source = tmp_path / "source"
    save_model(AutoModelForCausalLM.from_pretrained(tiny_target, dtype=torch.bfloat16), str(tiny_target), source)
    settings = config(source, texts, tmp_path / "out", lora)
    train_layerskip(settings)
    stored = load_file(settings.output / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}


def test_a_model_that_is_not_there(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="model 'nowhere' cannot be read"):
        train_layerskip(config(Path("nowhere"), texts, tmp_path / "out"))


def test_texts_that_cannot_be_used(tiny_target: Path, texts: Path, tmp_path: Path) -> None:
    settings = config(tiny_target, texts, tmp_path / "out")
    for data, message in [
        ("none.txt", "cannot be read"),
        ("one.txt", "at least two"),
        ("short.txt", "too little text"),
    ]:
        path = tmp_path / data
        if data != "none.txt":
            path.write_text("a b c\n\nd e f\n" if data == "short.txt" else "only one")
        with pytest.raises(ConfigurationError, match=message):
            train_layerskip(settings.model_copy(update={"data": (path,)}))


def test_the_example_is_valid() -> None:
    path = Path(__file__).parents[3] / "examples" / "train" / "layerskip.yaml"
    settings = LayerSkipTrainingConfig.model_validate(yaml.safe_load(path.read_text()))
    assert settings.recipe == EARLY_EXITS


def test_texts_of_several_sources(tiny_target: Path, texts: Path, tmp_path: Path) -> None:
    answers = tiny_answers(tiny_target, tmp_path, (f"number {n}" for n in range(4)), max_tokens=8)
    tokenizer = Tokenizer.load(str(tiny_target))
    both = read_texts([texts, answers], tokenizer, 512)
    assert both == [*read_texts([texts], tokenizer, 512), *read_texts([answers], tokenizer, 512)]
    assert config(tiny_target, texts, tmp_path / "out").data == (texts,)
    with pytest.raises(ConfigurationError, match="and the target has 100 tokens"):
        read_texts([answers], tokenizer, 100)
    origin = json.loads((answers / "provenance.json").read_text())
    origin["target"]["tokenizer_hash"] = "another"
    (answers / "provenance.json").write_text(json.dumps(origin))
    with pytest.raises(ConfigurationError, match="another tokenizer"):
        read_texts([texts, answers], tokenizer, 512)
