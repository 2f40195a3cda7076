"""`outrider train medusa2`: heads and target together, on the tiny model."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.fakes.answers import tiny_answers
from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from workers.core.sampling_params import SamplingParams
from workers.proposers.medusa import MedusaProposer
from workers.training.medusa.config import HeadsSettings, Medusa2TrainingConfig
from workers.training.medusa.train_joint import train_medusa2
from workers.training.optimizer_config import OptimizerConfig


@pytest.fixture(scope="module")
def answers(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_answers(
        tiny_target, tmp_path_factory.mktemp("answers"), (f"number {n % 3}" for n in range(20)), max_tokens=16
    )


def config(target: Path, answers: Path, output: Path, **more: object) -> Medusa2TrainingConfig:
    optimizer = OptimizerConfig(
        epochs=100,
        max_steps=20,
        batch_size=4,
        learning_rate=0.02,
        warmup_steps=2,
        validation_answers=4,
        evaluate_every=20,
        save_every=7,
    )
    settings: dict[str, object] = {
        "heads": HeadsSettings(num_heads=2, shared_head=False, vocabulary_size=200),
        "lora_rank": 4,
        "backbone_learning_rate": 1e-3,
        "heads_first_steps": 5,
        "optimizer": optimizer,
    }
    return Medusa2TrainingConfig(target=str(target), data=answers, output=output, **{**settings, **more})


@pytest.fixture(scope="module")
def trained(tiny_target: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "medusa2"
    metrics = train_medusa2(config(tiny_target, answers, output))
    assert metrics["head1_top1"] > 0.3
    assert metrics["perplexity_after"] < 1.5 * metrics["perplexity_before"], "the target is kept what it was"
    return output


def test_target_and_heads_are_served(trained: Path, answers: Path) -> None:
    loaded = tiny_loaded(trained / "model")
    prompt = json.loads((answers / "answers.jsonl").read_text().splitlines()[0])["prompt_token_ids"]
    sampling = SamplingParams(temperature=0.0, max_tokens=14)
    plain, with_heads = make_engine(loaded), make_engine(loaded, MedusaProposer.load(str(trained / "heads"), loaded))
    expected = run_all(plain, [make_request(prompt, sampling)])[0]
    result = run_all(with_heads, [make_request(prompt, sampling)])[0]
    plain.stop()
    with_heads.stop()
    assert result.token_ids == expected.token_ids
    assert result.stats is not None
    assert result.stats.drafted_tokens > 0


def test_what_is_reported(trained: Path) -> None:
    origin = json.loads((trained / "provenance.json").read_text())
    assert origin["perplexity_before"] > 1.0
    assert origin["perplexity_after"] > 1.0
    assert json.loads((trained / "heads" / "config.json").read_text())["outrider"]["target"] == str(trained / "model")


def test_the_target_learns_too_and_only_after_the_heads(
    tiny_target: Path, answers: Path, trained: Path, tmp_path: Path
) -> None:
    before = load_file(tiny_target / "model.safetensors")
    after = load_file(trained / "model" / "model.safetensors")
    changed = {name for name in before if not torch.allclose(before[name], after[name], atol=1e-6)}
    assert changed
    assert "lm_head.weight" not in changed, "the heads share it"
    train_medusa2(config(tiny_target, answers, tmp_path / "first", heads_first_steps=1000))
    still = load_file(tmp_path / "first" / "model" / "model.safetensors")
    assert all(torch.equal(before[name], still[name]) for name in before)


def test_all_weights_can_be_trained(tiny_target: Path, answers: Path, tmp_path: Path) -> None:
    metrics = train_medusa2(config(tiny_target, answers, tmp_path / "full", lora_rank=None))
    before = load_file(tiny_target / "model.safetensors")
    after = load_file(tmp_path / "full" / "model" / "model.safetensors")
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {"model.embed_tokens.weight", "lm_head.weight"}
    assert metrics["perplexity_after"] < 1.5 * metrics["perplexity_before"]


def test_an_interrupted_run_ends_like_one_that_was_not(
    tiny_target: Path, answers: Path, trained: Path, tmp_path: Path
) -> None:
    output = tmp_path / "medusa2"
    settings = config(tiny_target, answers, output)
    checkpoints = output.with_name("medusa2.checkpoints")
    shutil.copytree(trained.with_name("medusa2.checkpoints"), checkpoints)
    (checkpoints / "training_config.json").write_text(settings.model_dump_json(indent=2))
    shutil.rmtree(checkpoints / "checkpoint-20")
    assert [path.name for path in sorted(checkpoints.glob("checkpoint-*"))] == ["checkpoint-14"]
    assert json.loads((checkpoints / "checkpoint-14" / "trainer_state.json").read_text())["epoch"] % 1 > 0
    train_medusa2(settings)
    for part in ("model", "heads"):
        whole, again = (load_file(folder / part / "model.safetensors") for folder in (trained, output))
        assert all(torch.equal(whole[name], again[name]) for name in whole)
