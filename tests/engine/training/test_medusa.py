"""`outrider train medusa`: from stored hidden states to heads that are served."""

import json
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.fakes.answers import tiny_answers
from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from workers.core.config import MedusaConfig, ModelConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.folders import replacing
from workers.core.sampling_params import SamplingParams
from workers.medusa.checkpoint import HeadsCheckpoint
from workers.medusa.config import HeadsConfig
from workers.medusa.heads import MedusaHeads
from workers.proposers.medusa import MedusaProposer
from workers.training.answers import Answer
from workers.training.medusa.config import HeadsSettings, MedusaTrainingConfig
from workers.training.medusa.student import HeadsLoss, MedusaStudent, collate_rows
from workers.training.medusa.train import train_medusa, write_trained
from workers.training.optimizer_config import OptimizerConfig
from workers.training.vocabulary import frequent_tokens
from workers.verifier.proposer import build_proposer


@pytest.fixture(scope="module")
def answers(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prompts, asked again and again: what follows can be learnt by heart."""
    return tiny_answers(
        tiny_target, tmp_path_factory.mktemp("answers"), (f"number {n % 2}" for n in range(20)), max_tokens=24
    )


def config(target: Path, answers: Path, output: Path, **heads: object) -> MedusaTrainingConfig:
    return MedusaTrainingConfig(
        target=str(target),
        data=answers,
        output=output,
        heads=HeadsSettings(**{"num_heads": 3, "shared_head": False, "vocabulary_size": 200, **heads}),
        optimizer=OptimizerConfig(
            epochs=100,
            max_steps=30,
            batch_size=4,
            learning_rate=0.02,
            warmup_steps=2,
            validation_answers=4,
            evaluate_every=15,
            save_every=9,
        ),
    )


@pytest.fixture(scope="module")
def trained(tiny_target: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "heads"
    metrics = train_medusa(config(tiny_target, answers, output))
    assert metrics["head1_top1"] > 0.5
    return output


def test_heads_that_were_trained_are_served(tiny_target: Path, trained: Path) -> None:
    loaded = tiny_loaded(tiny_target)
    sampling = SamplingParams(temperature=0.0, max_tokens=20)
    answers = json.loads((trained.parent / "heads" / "provenance.json").read_text())
    assert answers["data"][0]["xxh3_128"]
    assert answers["commit"]
    line = json.loads((Path(answers["config"]["data"][0]) / "answers.jsonl").read_text().splitlines()[0])
    prompt = line["prompt_token_ids"]
    plain, with_heads = make_engine(loaded), make_engine(loaded, MedusaProposer.load(str(trained), loaded))
    expected = run_all(plain, [make_request(prompt, sampling)])[0]
    result = run_all(with_heads, [make_request(prompt, sampling)])[0]
    plain.stop()
    with_heads.stop()
    assert result.token_ids == expected.token_ids
    assert result.stats is not None
    assert result.stats.output_tokens / result.stats.verify_steps > 1.8, "it knows these answers by heart"


def test_what_is_stored_beside_the_weights(trained: Path) -> None:
    heads = HeadsCheckpoint.read(str(trained)).config
    assert heads.truncated_vocab_size == 200
    assert len(heads.outrider.head_accuracies) == 3
    assert heads.outrider.head_accuracies[0][0] > 0.5
    assert heads.outrider.tree_choices[0] == (0,)
    assert heads.outrider.target_fingerprint
    assert (trained / "training.png").stat().st_size > 1000


def test_an_interrupted_run_ends_like_one_that_was_not(
    tiny_target: Path, answers: Path, trained: Path, tmp_path: Path
) -> None:
    """Cut off between two checkpoints: the second one is half written, the first one is gone on from."""
    output = tmp_path / "heads"
    settings = config(tiny_target, answers, output)
    shutil.copytree(trained.with_name("heads.checkpoints"), output.with_name("heads.checkpoints"))
    checkpoints = output.with_name("heads.checkpoints")
    (checkpoints / "training_config.json").write_text(settings.model_dump_json(indent=2))
    shutil.rmtree(checkpoints / "checkpoint-30")
    (checkpoints / "checkpoint-30").mkdir()
    state = json.loads((checkpoints / "checkpoint-27" / "trainer_state.json").read_text())
    assert state["epoch"] % 1 > 0, "in the middle of an epoch"
    train_medusa(settings)
    whole, again = load_file(trained / "model.safetensors"), load_file(output / "model.safetensors")
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_checkpoints_of_other_settings_are_not_gone_on_from(tiny_target: Path, answers: Path, trained: Path) -> None:
    with pytest.raises(ConfigurationError, match="checkpoints of a run with other settings"):
        train_medusa(config(tiny_target, answers, trained, num_heads=2))
    assert HeadsCheckpoint.read(str(trained)).config.num_heads == 3


def test_a_disk_that_is_full_leaves_the_old_heads(tiny_target: Path, trained: Path) -> None:
    loaded = tiny_loaded(tiny_target)
    checkpoint = HeadsCheckpoint.read(str(trained))
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # no file may become longer
    try:
        with pytest.raises(OSError, match=r"model\.safetensors"), replacing(trained) as folder:
            write_trained(folder, checkpoint.build(), [[0.5]] * 3, HeadsSettings(num_heads=3), loaded)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before
    assert [path.name for path in trained.parent.glob("*writing*")] == []


def test_a_verifier_is_configured_with_them(tiny_target: Path, trained: Path) -> None:
    model = ModelConfig(model=str(tiny_target), dtype="float32")
    settings = VerifierConfig(model=model, method="medusa", medusa=MedusaConfig(model=str(trained)))
    assert isinstance(build_proposer(settings, tiny_loaded(tiny_target), "v", 1), MedusaProposer)
    with pytest.raises(ValueError, match=r"medusa\.model, the folder of the heads"):
        VerifierConfig(model=model, method="medusa")


def test_heads_learn_from_the_rows_ahead() -> None:
    """Rows of two answers: no head looks across the border, and untrained heads say what the target says."""
    size, vocab = 4, 8
    rows = torch.eye(vocab, size)
    settings = HeadsSettings(num_heads=2, vocabulary_size=None)
    hidden = torch.randn(5, size, generator=torch.Generator().manual_seed(1))
    pairs = [
        (Answer(0, [1], [3, 4, 5, 6], 0.0, 1, 3), hidden[:3].half().numpy()),
        (Answer(1, [1], [2, 7], 0.0, 1, 2), hidden[3:].half().numpy()),
    ]
    batch = collate_rows(pairs)
    assert batch["last"].tolist() == [2, 2, 2, 4, 4]
    assert batch["tokens"].tolist() == [3, 4, 5, 2, 7]
    heads = MedusaHeads.untrained(HeadsConfig(num_heads=2, original_lm_head=True), rows, None)
    loss = HeadsLoss(settings, rows, torch.arange(vocab), vocab)
    states = batch["hidden"].float()
    value, ranks = loss(heads, states, loss.teacher(states), batch["tokens"], batch["last"])
    assert (ranks >= 0).tolist() == [[True, True, False, True, False], [True, False, False, False, False]]
    log_probs = (states @ rows.T).log_softmax(-1)
    cross = -(log_probs.exp()[:, None] * log_probs[None]).sum(-1)  # [teacher, student]
    expected = 0.8 * (cross[1, 0] + cross[2, 1] + cross[4, 3]) / 3 + 0.64 * cross[2, 0]
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    student = MedusaStudent(heads, loss)
    student(**batch)["loss"].backward()
    assert heads.lm_head.weight.grad is None, "a shared head stays as it is"
    assert float(heads.layers(0)[0].weight.grad.norm()) > 0.0


def test_reduced_vocabularies_keep_what_they_must() -> None:
    found = [Answer(0, [1], [9, 9, 9, 5, 5, 7], 0.0, 1, 0)]
    assert frequent_tokens(found, 3, 16, always=(2,)).tolist() == [2, 5, 9]


def test_nothing_to_learn_from(tiny_target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "answers.jsonl").touch()
    (folder / "hidden.bin").touch()
    with pytest.raises(ConfigurationError, match="nothing to learn from"):
        train_medusa(config(tiny_target, folder, tmp_path / "heads"))
    with pytest.raises(ConfigurationError, match="holds no answers"):
        train_medusa(config(tiny_target, tmp_path / "none", tmp_path / "heads"))
