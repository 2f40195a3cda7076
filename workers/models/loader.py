"""Load a causal LM by hub id, local folder or GGUF file and prepare it for the engine."""

import json
import logging
import os
from dataclasses import replace

import psutil
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
from workers.models.sharded import parallel_options, whole
from workers.models.supported import check_device, check_supported, context_length
from workers.parallel.group import RankGroup
from workers.parallel.launcher import RankLauncher, SubprocessLauncher
from workers.parallel.leader import GroupLeader
from workers.text.tokenizer import Tokenizer

__all__ = ["check_model", "load_model", "load_shard", "set_threads"]

logger = logging.getLogger(__name__)

_NOT_HASHED = ("_name_or_path", "transformers_version", "dtype", "distributed_config")
_ARITHMETIC = 2  # raised when the same weights begin to round differently (2: lean decoders)
_HASHED_BYTES = 1 << 22  # of each tensor; whole tensors below it


def load_model(config: ModelConfig, launcher: RankLauncher | None = None) -> LoadedModel:
    """Load and prepare; raises `NotFoundError` or `ConfigurationError` with what is allowed.

    With `tensor_parallel_size` above 1 this process becomes rank 0 of a group whose other ranks `launcher` starts
    (child processes by default), and `LoadedModel.close` ends them. `UnavailableError` when one is lost meanwhile.
    """
    check_model(config)
    if config.tensor_parallel_size == 1:
        return run_apart(lambda: _load(config, None))
    return run_apart(lambda: _load_together(config, launcher or SubprocessLauncher()))


def load_shard(config: ModelConfig, group: RankGroup) -> LoadedModel:
    """The shard of another rank than 0; to be called while rank 0 loads. It has no LM head: logits are rank 0's."""
    loaded = run_apart(lambda: _load(config, group))
    loaded.model.set_output_embeddings(torch.nn.Identity())
    return loaded


def check_model(config: ModelConfig) -> None:
    """What can be said without weights: raises what `load_model` would, in a moment."""
    check_device(config)
    _resolve_dtype(config, torch.device(config.device))
    ref, _ = _base_of(config)
    check_supported(config, ref, read_config(ref))


def _load_together(config: ModelConfig, launcher: RankLauncher) -> LoadedModel:
    leader = GroupLeader(config, launcher)
    try:
        loaded = _load(config.model_copy(update={"device": str(leader.group.device)}), leader.group)
        leader.serve()
    except Exception as error:
        reason = leader.explain(error)
        leader.kill()
        leader.group.close()
        raise reason from error
    return replace(loaded, leader=leader)


def _base_of(config: ModelConfig) -> tuple[str, DraftCheckpoint | None]:
    """Where the weights of a transformers model are, and what a draft checkpoint changes in them."""
    checkpoint = DraftCheckpoint.read(config.model)
    if config.base is not None and checkpoint is None:
        raise ConfigurationError(f"base is for draft checkpoints, and {config.model!r} is none: leave it out")
    return ((config.base or checkpoint.base) if checkpoint else config.model), checkpoint


def _load(config: ModelConfig, group: RankGroup | None) -> LoadedModel:
    device = torch.device(config.device)
    dtype = _resolve_dtype(config, device)
    set_threads(config)
    ref, checkpoint = _base_of(config)
    # float16 on the CPU means fp16 weights under fp32 arithmetic, so the modules around them stay fp32.
    module_dtype = torch.float32 if device.type == "cpu" and dtype == "float16" else getattr(torch, dtype)
    register()
    model = _with_our_attention(ref, module_dtype, config.tensor_parallel_size)
    model.requires_grad_(False)
    if checkpoint is not None:
        checkpoint.apply(config.model, model)
    if config.layers is not None:
        keep_layers(model, config.layers)
    fingerprint = _fingerprint(model, dtype)
    model.to(device)
    prepare_decoder(model, ref, group)
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
        context_length=context_length(config, text_config),
        eos_token_ids=_eos_ids(model, tokenizer, vocab_size),
        fingerprint=fingerprint,
        tokenizer=tokenizer,
        dtype=dtype,
        kv_dtype=module_dtype,
        device=device,
        tensor_parallel_size=config.tensor_parallel_size,
    )


def set_threads(config: ModelConfig) -> None:
    """CPU threads of the calling thread's work, and of threads that are new to torch.

    Without a number, the ranks of a group share the cores of their machine; a cluster gives each of them some by
    OMP_NUM_THREADS, as Ray does.
    """
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    elif config.tensor_parallel_size > 1 and "OMP_NUM_THREADS" not in os.environ:
        cores = psutil.Process().cpu_affinity() if hasattr(psutil.Process, "cpu_affinity") else None
        count = len(cores) if cores else psutil.cpu_count() or 1
        torch.set_num_threads(max(1, count // config.tensor_parallel_size))


def _with_our_attention(ref: str, dtype: torch.dtype, ranks: int) -> PreTrainedModel:
    options = parallel_options(ranks) if ranks > 1 else {}
    try:
        model = read_model(ref, dtype, attn_implementation=ATTENTION_NAME, **options)
    except KeyError as error:
        if ATTENTION_NAME not in str(error):
            raise
        raise ConfigurationError(f"{ref!r}: this model does not use transformers' attention interface") from error
    return model.eval()


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
    """Of the whole model, however many ranks share it: see docs/adr/0005-tensor-parallel-groups.md."""
    settings = {k: v for k, v in model.config.to_dict().items() if k not in _NOT_HASHED}
    digest = xxhash.xxh3_128(f"{json.dumps(settings, sort_keys=True, default=str)}|{dtype}|{_ARITHMETIC}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        data = whole(tensor).detach().contiguous().view(-1).view(torch.uint8)
        parts = (data,) if len(data) <= _HASHED_BYTES else (data[: _HASHED_BYTES // 2], data[-_HASHED_BYTES // 2 :])
        digest.update(name.encode())
        for part in parts:
            digest.update(part.cpu().numpy().data)
    return digest.hexdigest()


def _eos_ids(model: PreTrainedModel, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    generation = getattr(model, "generation_config", None)
    eos = getattr(generation, "eos_token_id", None) or model.config.eos_token_id
    ids = eos if isinstance(eos, list) else [eos] if eos is not None else []
    return tuple(sorted(token for token in {*ids, *tokenizer.eos_token_ids} if token < vocab_size))
