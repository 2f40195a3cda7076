"""Load a causal LM by hub id, local folder or GGUF file and prepare it for the engine."""

import json
import logging
from typing import Any

import torch
import xxhash
from transformers import PreTrainedModel

from workers.attention.paged import ATTENTION_NAME, register
from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.core.threads import run_apart
from workers.models.draft_checkpoint import DraftCheckpoint, keep_layers
from workers.models.loaded import LoadedModel
from workers.models.packed import bf16_is_native, pack_for_cpu
from workers.models.pretrained import read_config, read_model
from workers.models.self_check import prepare_decoder
from workers.text.tokenizer import Tokenizer

__all__ = ["load_model"]

logger = logging.getLogger(__name__)

_NOT_HASHED = ("_name_or_path", "transformers_version", "dtype")
_ARITHMETIC = 2  # raised when the same weights begin to round differently (2: lean decoders)
_HASHED_BYTES = 1 << 22  # of each tensor; whole tensors below it


def load_model(config: ModelConfig) -> LoadedModel:
    """Load and prepare; raises `NotFoundError` or `ConfigurationError` with what is allowed."""
    return run_apart(lambda: _load(config))


def _load(config: ModelConfig) -> LoadedModel:
    device = torch.device(config.device)
    dtype = _resolve_dtype(config, device)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    checkpoint = DraftCheckpoint.read(config.model)
    if config.base is not None and checkpoint is None:
        raise ConfigurationError(f"base is for draft checkpoints, and {config.model!r} is none: leave it out")
    ref = (config.base or checkpoint.base) if checkpoint else config.model
    hf_config = read_config(ref)
    _check_supported(config, hf_config)
    # float16 on the CPU means fp16 weights under fp32 arithmetic, so the modules around them stay fp32.
    module_dtype = torch.float32 if device.type == "cpu" and dtype == "float16" else getattr(torch, dtype)
    register()
    model = _with_our_attention(ref, module_dtype)
    model.requires_grad_(False)
    if checkpoint is not None:
        checkpoint.apply(config.model, model)
    if config.layers is not None:
        keep_layers(model, config.layers)
    fingerprint = _fingerprint(model, dtype)
    model.to(device)
    prepare_decoder(model, ref)
    if device.type == "cpu":
        _prepare_for_cpu(model, dtype)
    tokenizer = Tokenizer.load(ref)
    text_config = model.config.get_text_config()
    heads = text_config.num_attention_heads
    vocab_size = min(text_config.vocab_size, tokenizer.vocab_size)
    return LoadedModel(
        model=model,
        name=config.model,
        vocab_size=vocab_size,
        num_layers=text_config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(text_config, "num_key_value_heads", None) or heads,
        head_dim=getattr(text_config, "head_dim", None) or text_config.hidden_size // heads,
        hidden_size=text_config.hidden_size,
        context_length=_context_length(config, text_config),
        eos_token_ids=_eos_ids(model, tokenizer, vocab_size),
        fingerprint=fingerprint,
        tokenizer=tokenizer,
        dtype=dtype,
        kv_dtype=module_dtype,
        device=device,
    )


def _with_our_attention(ref: str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        model = read_model(ref, dtype, attn_implementation=ATTENTION_NAME)
    except KeyError as error:
        if ATTENTION_NAME not in str(error):
            raise
        raise ConfigurationError(f"{ref!r}: this model does not use transformers' attention interface") from error
    return model.eval()


def _check_supported(config: ModelConfig, hf_config: Any) -> None:
    size = config.tensor_parallel_size
    sizes = {
        "attention heads": hf_config.num_attention_heads,
        "KV heads": getattr(hf_config, "num_key_value_heads", None) or hf_config.num_attention_heads,
        "intermediate size": getattr(hf_config, "intermediate_size", size),
    }
    for what, number in sizes.items():
        if number % size:
            allowed = [n for n in range(1, sizes["KV heads"] + 1) if all(v % n == 0 for v in sizes.values())]
            raise ConfigurationError(
                f"tensor_parallel_size {size} does not divide the {number} {what} of {config.model!r}; "
                f"allowed: {allowed}"
            )
    if size > 1:
        raise ConfigurationError("tensor_parallel_size above 1 is not available in this version")
    context = _context_length(config, hf_config)
    window = getattr(hf_config, "sliding_window", None)
    if getattr(hf_config, "use_sliding_window", True) and window is not None and window < context:
        raise ConfigurationError(
            f"{config.model!r} attends over a sliding window of {window} tokens, which is not supported beyond it: "
            f"set max_context_length to at most {window}"
        )
    rope = getattr(hf_config, "rope_parameters", None) or {}
    first = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and first is not None and first < context:
        raise ConfigurationError(
            f"{config.model!r} turns all tokens by other angles once one is beyond position {first} (longrope), "
            f"which is not supported with cached keys: set max_context_length to at most {first}"
        )
    chunk = getattr(hf_config, "attention_chunk_size", None)
    if chunk is not None and chunk < context:
        raise ConfigurationError(
            f"{config.model!r} attends within chunks of {chunk} tokens, which is not supported beyond one: "
            f"set max_context_length to at most {chunk}"
        )
    if getattr(hf_config, "attn_logit_softcapping", None):
        raise ConfigurationError(f"{config.model!r} caps attention logits, which is not supported")


def _context_length(config: ModelConfig, hf_config: Any) -> int:
    own: int = hf_config.max_position_embeddings
    wanted = config.max_context_length or own
    if wanted > own:
        raise ConfigurationError(
            f"max_context_length {wanted} is above the {own} positions of {config.model!r}; at most {own}"
        )
    return wanted


def _resolve_dtype(config: ModelConfig, device: torch.device) -> str:
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f"device {config.device!r}: no CUDA device is available here; use 'cpu'")
    if config.dtype != "auto":
        return config.dtype
    if device.type == "cpu" and not bf16_is_native():
        return "float16"
    return "bfloat16"


def _prepare_for_cpu(model: PreTrainedModel, dtype: str) -> None:
    if dtype == "bfloat16" and not bf16_is_native():
        logger.warning("this CPU has no bf16 arithmetic: bfloat16 runs unpacked and slowly; float16 is faster here")
        return
    pack_for_cpu(model, dtype)


def _fingerprint(model: PreTrainedModel, dtype: str) -> str:
    settings = {k: v for k, v in model.config.to_dict().items() if k not in _NOT_HASHED}
    digest = xxhash.xxh3_128(f"{json.dumps(settings, sort_keys=True, default=str)}|{dtype}|{_ARITHMETIC}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        digest.update(name.encode())
        digest.update(data if data.size <= _HASHED_BYTES else data[: _HASHED_BYTES // 2])
        if data.size > _HASHED_BYTES:
            digest.update(data[-_HASHED_BYTES // 2 :])
    return digest.hexdigest()


def _eos_ids(model: PreTrainedModel, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    generation = getattr(model, "generation_config", None)
    eos = getattr(generation, "eos_token_id", None) or model.config.eos_token_id
    ids = eos if isinstance(eos, list) else [eos] if eos is not None else []
    return tuple(sorted(token for token in {*ids, *tokenizer.eos_token_ids} if token < vocab_size))
