"""Layers of the Llama kind are replaced by leaner ones; all others stay as they are."""

import pytest
import torch

from tests.unit.models.test_self_check import GROUPED, model_of
from workers.models.lean import make_lean
from workers.models.self_check import prepare_decoder


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral"])
def test_the_llama_kind_is_made_lean_and_computes_the_same(kind: str) -> None:
    model = model_of(kind, **GROUPED, head_dim=8)
    prepare_decoder(model, kind)  # compares with the original
    assert {type(layer).__name__ for layer in model.base_model.layers} == {"_LeanLayer"}


def test_biases_are_joined_too() -> None:
    model = model_of("llama", **GROUPED, head_dim=8, attention_bias=True, mlp_bias=True)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data = torch.randn_like(parameter)
    prepare_decoder(model, "llama")
    assert model.base_model.layers[0].qkv_proj.bias is not None


def test_a_lean_model_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.models.lean.rms_norm", lambda x, *_: x)
    with pytest.raises(Exception, match="does not compute what it should"):
        prepare_decoder(model_of("llama", **GROUPED, head_dim=8), "llama")


@pytest.mark.parametrize("kind", ["gemma", "olmo2"])
def test_other_decoders_stay_as_they_are(kind: str) -> None:
    model = model_of(kind, **GROUPED, **({"head_dim": 8} if kind == "gemma" else {}))
    before = list(model.base_model.layers)
    assert not make_lean(model)
    assert list(model.base_model.layers) == before


def test_layers_that_are_not_plain_products_stay_as_they_are() -> None:
    class Quantised(torch.nn.Linear):
        pass

    model = model_of("llama", **GROUPED, head_dim=8)
    model.base_model.layers[1].mlp.up_proj = Quantised(32, 64, bias=False)
    assert not make_lean(model)


def test_heads_that_are_turned_in_part_stay_as_they_are() -> None:
    model = model_of("llama", **GROUPED, head_dim=8)
    rotary = model.base_model.rotary_emb.forward
    model.base_model.rotary_emb.forward = lambda x, position_ids: tuple(a[..., :4] for a in rotary(x, position_ids))
    assert not make_lean(model)
