"""Models that would answer wrongly through our attention are refused when they are loaded."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from workers.attention.paged import ATTENTION_NAME, register
from workers.core.errors import ConfigurationError
from workers.models.self_check import prepare_decoder

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 64}


def model_of(kind: str, dtype: torch.dtype = torch.float32, **settings: Any) -> PreTrainedModel:
    register()
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **settings)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME, dtype=dtype)
    for parameter in model.parameters():  # sharper than initialised, so that attention matters
        parameter.data = torch.randn_like(parameter) * 0.3 if parameter.dim() > 1 else parameter.data
    return model.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma"])
def test_what_is_right_passes(kind: str, dtype: torch.dtype) -> None:
    prepare_decoder(model_of(kind, dtype, **GROUPED, head_dim=8), kind)


def test_attention_sinks_are_refused() -> None:
    model = model_of("gpt_oss", **GROUPED, head_dim=8, num_local_experts=2, num_experts_per_tok=1)
    for layer in model.base_model.layers:
        layer.self_attn.sinks.data.fill_(2.0)
    with pytest.raises(ConfigurationError, match=r"'gpt_oss' does not compute what it should .* attention sinks"):
        prepare_decoder(model, "gpt_oss")


@pytest.mark.parametrize("kind", ["bloom", "stablelm", "mpt"])
def test_models_that_go_other_ways_are_refused(kind: str) -> None:
    settings = GROUPED if kind == "stablelm" else {"vocab_size": 64, "hidden_size": 32, "d_model": 32}
    sizes = {} if kind == "stablelm" else {"n_layer": 2, "n_layers": 2, "n_head": 4, "n_heads": 4}
    with pytest.raises(ConfigurationError, match=f"'{kind}'"):
        prepare_decoder(model_of(kind, **settings, **sizes), kind)
