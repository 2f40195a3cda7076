"""A GGUF file, written here from the tiny model, runs as the folder does."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from tests.fakes.parallel_models import load_shared
from workers.core.sampling_params import SpeculationMode

LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


@pytest.fixture(scope="module")
def gguf_file(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = json.loads((tiny_target / "config.json").read_text())
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, tiny_target, config)
    for name, tensor in load_file(tiny_target / "model.safetensors").items():
        writer.add_tensor(*_converted(name, tensor.float(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, config: dict[str, int]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = dict(tokenizer["model"]["vocab"]) | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    special = {t["id"] for t in tokenizer["added_tokens"]}
    tokens = [word for word, _ in sorted(words.items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(len(tokens))]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def _converted(name: str, tensor: torch.Tensor, config: dict[str, int]) -> tuple[str, np.ndarray]:
    """GGUF's name, and its order of rotary halves for query and key weights."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name], tensor.numpy()
    _, _, layer, rest = name.split(".", 3)
    rest = rest.removesuffix(".weight")
    if rest.endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if "q_proj" in rest else "num_key_value_heads"]
        rows, columns = tensor.shape
        tensor = tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight", np.ascontiguousarray(tensor.numpy())


def test_it_writes_what_the_folder_writes(tiny_target: Path, gguf_file: Path) -> None:
    answers = []
    for model in (tiny_target, gguf_file):
        loaded = tiny_loaded(model)
        engine = make_engine(loaded)
        request = make_request(range(20, 40), mode=SpeculationMode.OFF)
        answers.append(run_all(engine, [request])[0].token_ids)
        engine.stop()
    assert answers[0] == answers[1]
    assert len(answers[0]) > 10


def test_two_ranks_share_it(gguf_file: Path) -> None:
    alone, shared = (load_shared(gguf_file, ranks) for ranks in (1, 2))
    engines = [make_engine(loaded) for loaded in (alone, shared)]
    request = make_request([7, 11, 13], seed=5, mode=SpeculationMode.OFF)
    answers = [run_all(engine, [request])[0].token_ids for engine in engines]
    for engine in engines:
        engine.stop()
    shared.close()
    assert answers[0] == answers[1]
    assert alone.fingerprint == shared.fingerprint
