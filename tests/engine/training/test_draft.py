"""`outrider train draft`, and drafts that are stored as their difference from a target."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.fakes.answers import tiny_answers
from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError, NotFoundError
from workers.core.folders import replacing
from workers.kvcache.storage import KvStorage
from workers.models.export import export_draft
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.runner.model_runner import ModelRunner
from workers.text.tokenizer import Tokenizer
from workers.training.answers import Answer
from workers.training.batches import buckets, split
from workers.training.draft.config import DraftTrainingConfig
from workers.training.draft.student import DraftStudent, collate_answers
from workers.training.draft.train import train_draft
from workers.training.optimizer_config import OptimizerConfig
from workers.training.trainer import last_checkpoint
from workers.training.vocabulary import frequent_tokens


@pytest.fixture(scope="module")
def answers(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_answers(
        tiny_target, tmp_path_factory.mktemp("answers"), (f"number {n}" for n in range(24)), max_tokens=24
    )


def config(tiny_target: Path, answers: Path, output: Path, **optimizer: object) -> DraftTrainingConfig:
    settings = {"max_steps": 40, "epochs": 100, "batch_size": 4, "warmup_steps": 2, "validation_answers": 4}
    return DraftTrainingConfig(
        target=str(tiny_target),
        data=answers,
        output=output,
        layers=(0,),
        vocabulary_size=300,
        optimizer=OptimizerConfig(**{**settings, "evaluate_every": 20, "save_every": 9, **optimizer}),
    )


@pytest.fixture(scope="module")
def trained(tiny_target: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("draft") / "draft"
    metrics = train_draft(config(tiny_target, answers, output))
    assert set(metrics) == {"loss", "top1", "top4"}
    return output


def test_it_learns(tiny_target: Path, answers: Path, trained: Path, tmp_path: Path) -> None:
    history = json.loads((last_checkpoint(trained.with_name("draft.checkpoints")) / "trainer_state.json").read_text())
    losses = [entry["loss"] for entry in history["log_history"] if "loss" in entry]
    assert losses[-1] < losses[0] - 0.05
    assert (trained / "training.png").stat().st_size > 1000
    origin = json.loads((trained / "provenance.json").read_text())
    assert origin["config"]["layers"] == [0]
    assert origin["data"][0]["provenance"]["config"]["max_tokens"] == 24
    assert origin["data"][0]["hidden_xxh3_128"]
    assert origin["resumed"] == []
    assert origin["ended"] >= origin["time"]


def test_a_run_that_was_interrupted_ends_like_one_that_was_not(
    tiny_target: Path, answers: Path, trained: Path, tmp_path: Path
) -> None:
    output = tmp_path / "draft"
    train_draft(config(tiny_target, answers, output))
    checkpoints = output.with_name("draft.checkpoints")
    shutil.rmtree(checkpoints / "checkpoint-40")
    (checkpoints / "checkpoint-39").mkdir()  # cut off while being written
    state = json.loads((checkpoints / "checkpoint-36" / "trainer_state.json").read_text())
    assert state["epoch"] % 1 > 0, "in the middle of an epoch"
    shutil.rmtree(output)
    train_draft(config(tiny_target, answers, output))
    assert not (checkpoints / "checkpoint-39").exists()
    one, two = load_file(trained / "draft.safetensors"), load_file(output / "draft.safetensors")
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


def test_the_targets_states_can_be_learnt_too(tiny_target: Path) -> None:
    draft = AutoModelForCausalLM.from_pretrained(tiny_target, dtype=torch.float32)
    tokens, rows = torch.tensor([[5, 6, 7, 8]]), torch.arange(4)
    with torch.no_grad():
        own = draft.base_model(input_ids=tokens, use_cache=False).last_hidden_state[0]
        plain, weighted = (DraftStudent(draft, torch.arange(300), weight) for weight in (0.0, 2.0))
        assert weighted(tokens, rows, own)["loss"] == plain(tokens, rows, own)["loss"]
        for teacher in (own * 0.5, own + 1.0):
            far = ((own - teacher).square().sum(-1) / teacher.square().sum(-1)).mean()
            added = weighted(tokens, rows, teacher)["loss"] - plain(tokens, rows, teacher)["loss"]
            assert float(added) == pytest.approx(2.0 * float(far), rel=1e-4)


def test_the_checkpoint_is_a_model(tiny_target: Path, trained: Path) -> None:
    loaded = load_model(ModelConfig(model=str(trained), dtype="float32"))
    target = load_model(ModelConfig(model=str(tiny_target), dtype="float32"))
    assert (loaded.num_layers, loaded.vocab_size) == (1, target.vocab_size)
    assert loaded.tokenizer_hash == Tokenizer.load(str(trained)).tokenizer_hash == target.tokenizer_hash
    assert loaded.fingerprint != target.fingerprint
    logits = logits_of(loaded, torch.tensor([[1, 2, 3, 4, 5]]))
    vocabulary = load_file(trained / "draft.safetensors")["vocabulary"].long()
    assert logits.shape == (5, target.vocab_size)
    possible = logits > -torch.inf
    assert possible.sum(1).tolist() == [300] * 5
    assert possible[:, vocabulary].all()


def test_a_base_can_be_given(tiny_target: Path, trained: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(tiny_target, moved)
    one = load_model(ModelConfig(model=str(trained), base=str(moved), dtype="float32"))
    assert one.fingerprint == load_model(ModelConfig(model=str(trained), dtype="float32")).fingerprint
    with pytest.raises(ConfigurationError, match="base is for draft checkpoints"):
        load_model(ModelConfig(model=str(tiny_target), base=str(moved)))


def test_broken_checkpoints_say_what_is_wrong(trained: Path, tmp_path: Path) -> None:
    def broken(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(trained, folder)
        return folder

    description = json.loads((trained / "draft.json").read_text())
    cut = broken("cut") / "draft.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(ConfigurationError, match=r"draft\.safetensors cannot be read"):
        load_model(ModelConfig(model=str(cut.parent)))

    tensors = load_file(trained / "draft.safetensors")
    tensors.pop(next(name for name in tensors if name.startswith("layers.")))
    partial = broken("partial")
    save_file(tensors, partial / "draft.safetensors")
    with pytest.raises(ConfigurationError, match="do not fit the layers"):
        load_model(ModelConfig(model=str(partial)))

    for name, change, message in (
        ("json", "{", r"draft\.json: the file: Invalid JSON"),
        ("key", json.dumps({"base": "x"}), r"draft\.json: layers: Field required"),
        ("none", json.dumps({**description, "layers": []}), r"layers: .* at least 1 item"),
        ("fraction", json.dumps({**description, "layers": [0, 1.5]}), r"layers\.1: .* valid integer"),
        ("text", json.dumps({**description, "vocab_size": "512"}), r"vocab_size: .* valid integer"),
        ("number", json.dumps({**description, "base": 5}), r"base: .* valid string"),
    ):
        (broken(name) / "draft.json").write_text(change)
        with pytest.raises(ConfigurationError, match=message):
            load_model(ModelConfig(model=str(tmp_path / name)))

    whole = load_file(trained / "draft.safetensors")
    for name, vocabulary in (
        ("outside", [0, 600]),
        ("negative", [-5, 3]),
        ("twice", [3, 3]),
        ("unsorted", [4, 3]),
        ("empty", []),
        ("halves", [0.5, 1.5]),
    ):
        dtype = torch.float32 if name == "halves" else torch.int32
        save_file({**whole, "vocabulary": torch.tensor(vocabulary, dtype=dtype)}, broken(name) / "draft.safetensors")
        with pytest.raises(ConfigurationError, match="vocabulary must be ascending token ids from 0 to 511"):
            load_model(ModelConfig(model=str(tmp_path / name)))

    other = broken("other")
    (other / "draft.json").write_text(json.dumps({**description, "hidden_size": 999}))
    with pytest.raises(ConfigurationError, match="hidden_size 999"):
        load_model(ModelConfig(model=str(other)))


def test_states_stand_before_their_tokens() -> None:
    one = Answer(0, [7, 8], [9, 10, 11], 0.0, 0, 3)
    two = Answer(1, [5], [6], 0.0, 0, 1)
    states = [np.full((3, 2), 1, dtype=np.float16), np.full((1, 2), 2, dtype=np.float16)]
    batch = collate_answers([(one, states[0]), (two, states[1])], max_length=16)
    assert batch["input_ids"].tolist() == [[7, 8, 9, 10], [5, 0, 0, 0]]
    assert batch["rows"].tolist() == [1, 2, 3, 4]  # tokens 8, 9, 10 of the first, 5 of the second
    assert batch["teacher"][:, 0].tolist() == [1, 1, 1, 2]
    short = collate_answers([(one, states[0])], max_length=3)
    assert short["input_ids"].tolist() == [[7, 8, 9]]
    assert short["rows"].tolist() == [1, 2]


def test_the_vocabulary_is_the_most_frequent() -> None:
    answers = [Answer(0, [1], [5, 5, 9, 9, 9, 2], 0.0, 0, 6)]
    assert frequent_tokens(answers, 2, 16).tolist() == [5, 9]
    assert frequent_tokens(answers, 5, 16).tolist() == [0, 1, 2, 5, 9]
    assert frequent_tokens(answers, 99, 16).tolist() == list(range(16))


def test_batches_cover_everything_once() -> None:
    batches = buckets([5, 1, 9, 3, 7, 2, 2], 3, seed=0)
    assert sorted(index for batch in batches for index in batch) == list(range(7))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    training, validation = split(10, 4, seed=0)
    assert sorted([*training, *validation]) == list(range(10))
    assert len(validation) == 2


def fill_the_disk(folder: Path) -> None:
    with replacing(folder) as fresh:
        (fresh / "a").write_text("new")
        raise OSError("disk full")


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with replacing(folder) as fresh:
        (fresh / "a").write_text("old")
    with pytest.raises(OSError, match="disk full"):
        fill_the_disk(folder)
    assert (folder / "a").read_text() == "old"
    with replacing(folder) as fresh:
        (fresh / "a").write_text("new")
    assert (folder / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_export_is_a_plain_transformers_folder(tiny_target: Path, trained: Path, tmp_path: Path) -> None:
    export_draft(str(trained), tmp_path / "plain")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)
    ours = load_model(ModelConfig(model=str(trained), dtype="float32"))
    again = load_model(ModelConfig(model=str(tmp_path / "plain"), dtype="float32"))
    assert again.tokenizer_hash == ours.tokenizer_hash
    assert plain.config.num_hidden_layers == 1
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    vocabulary = load_file(trained / "draft.safetensors")["vocabulary"].long()
    expected = logits_of(ours, ids)[:, vocabulary]
    assert torch.allclose(plain(ids).logits[0][:, vocabulary], expected, atol=3e-2)  # fp16 embeddings
    with pytest.raises(ConfigurationError, match="is not empty"):
        export_draft(str(trained), tmp_path / "plain")
    with pytest.raises(ConfigurationError, match="is not a draft checkpoint"):
        export_draft(str(tiny_target), tmp_path / "other")
    with pytest.raises(NotFoundError, match="model 'nowhere' cannot be read"):
        export_draft(str(trained), tmp_path / "other", base="nowhere")


def logits_of(loaded: LoadedModel, ids: torch.Tensor) -> torch.Tensor:
    """[tokens, vocab] of one short sequence."""
    count = ids.shape[1]
    storage = KvStorage(
        num_layers=loaded.num_layers,
        num_slots=count,
        num_kv_heads=loaded.num_kv_heads,
        head_dim=loaded.head_dim,
        dtype=torch.float32,
    )
    slots = np.arange(count, dtype=np.int64)
    chunk = SequenceChunk(ids[0].tolist(), range(count), slots, slots[:0], slots, causal_mask(count), range(count))
    return ModelRunner(loaded, storage).forward([chunk])[0].logits
