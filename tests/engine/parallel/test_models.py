"""What can be shared by ranks: draft checkpoints, reduced vocabularies, other types, decoders that are not lean."""

from pathlib import Path

import pytest
import torch
from transformers import Starcoder2Config, Starcoder2ForCausalLM

from tests.fakes.parallel_models import build_shared_model, load_shared
from workers.core.errors import ConfigurationError, OutriderError
from workers.models.draft_checkpoint import DraftCheckpoint, keep_layers
from workers.models.loaded import LoadedModel
from workers.models.pretrained import read_model
from workers.models.tiny import write_tokenizer
from workers.runner.kv_memory import storage_for
from workers.runner.layer_split import probe_chunk
from workers.runner.model_runner import ModelRunner

CLOSE = {"float32": 1e-3, "float16": 1e-3, "bfloat16": 0.3}  # of logits that are about 2.5 large


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shared_model(tmp_path_factory.mktemp("target"))


def logits_of(loaded: LoadedModel) -> torch.Tensor:
    storage = storage_for(loaded, 16)
    [output] = ModelRunner(loaded, storage).forward([probe_chunk(loaded.vocab_size, storage.num_slots)])
    return output.logits


def equal_alone_and_shared(folder: Path, ranks: int, **settings: object) -> LoadedModel:
    """Logits and identity; the closed model of several ranks."""
    alone = load_shared(folder, 1, **settings)
    shared = load_shared(folder, ranks, **settings)
    try:
        ours, theirs = logits_of(shared), logits_of(alone)
    finally:
        shared.close()
    assert torch.equal(ours.isfinite(), theirs.isfinite())
    assert (ours - theirs)[theirs.isfinite()].abs().max() < CLOSE[shared.dtype]
    assert shared.fingerprint == alone.fingerprint
    return shared


def test_a_draft_checkpoint_with_a_reduced_vocabulary_in_half_precision(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    model = read_model(str(target), torch.float32)
    keep_layers(model, (0, 3))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.01)
    checkpoint = DraftCheckpoint(str(target), (0, 3), hidden_size=96, vocab_size=512)
    checkpoint.write(folder, model, torch.arange(3, 300))
    shared = equal_alone_and_shared(folder, 3, dtype="float16")
    assert shared.num_layers == 2
    assert shared.token_map is not None


def test_some_layers_in_bfloat16(target: Path) -> None:
    assert equal_alone_and_shared(target, 2, dtype="bfloat16", layers=(0, 2)).num_layers == 2


def test_a_decoder_that_is_not_lean_and_has_biases_everywhere(tmp_path: Path) -> None:
    """A bias behind a row-wise layer must be added once, not by every rank."""
    torch.manual_seed(0)
    config = Starcoder2Config(
        vocab_size=512,
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=12,
        num_key_value_heads=6,
        max_position_embeddings=256,
        sliding_window=None,
        bos_token_id=1,
        eos_token_id=2,
        use_bias=True,
    )
    model = Starcoder2ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.bias", "c_proj.bias")):
                weight.normal_(0.0, 1.0)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 512)
    shared = equal_alone_and_shared(tmp_path, 2)
    assert type(shared.model.base_model).__name__ == "Starcoder2Model"


def test_a_damaged_model_leaves_no_rank_behind(target: Path, tmp_path: Path) -> None:
    """Every rank finds the fault by itself; what is said is what a single process says."""
    model = read_model(str(target), torch.float32)
    with torch.no_grad():
        model.base_model.norm.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 512)
    with pytest.raises(ConfigurationError, match="no finite logits"):
        load_shared(tmp_path, 2)
    assert not torch.distributed.is_initialized()


def test_a_process_has_one_group(target: Path) -> None:
    first = load_shared(target, 2)
    try:
        with pytest.raises(OutriderError, match="part of a tensor-parallel group already; close that model first"):
            load_shared(target, 2)
        assert logits_of(first).isfinite().all()
    finally:
        first.close()
    first.close()  # a second time is nothing
    with pytest.raises(OutriderError):
        logits_of(first)


def test_models_that_transformers_cannot_cut_by_heads_are_refused(tmp_path: Path) -> None:
    from transformers import Phi3Config

    Phi3Config(hidden_size=96, num_attention_heads=12, num_key_value_heads=6, intermediate_size=192).save_pretrained(
        tmp_path
    )
    with pytest.raises(ConfigurationError, match=r"q_proj, k_proj, v_proj transformers can cut .* phi3 has none for"):
        load_shared(tmp_path, 2)
