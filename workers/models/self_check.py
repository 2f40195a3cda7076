"""Proves, when a model is loaded, that it computes the same through our attention and layers as through its own.

Models differ in ways that their settings do not tell: attention sinks, position biases, layers that are no attention at
all. A few tokens, in two pieces over a paged cache, show all of them.
"""

import numpy as np
import torch
from transformers import PreTrainedModel

from workers.attention.forward_context import ForwardContext, SequenceChunk, causal_mask
from workers.attention.grouping import build_groups
from workers.attention.paged import ATTENTION_NAME
from workers.core.errors import ConfigurationError
from workers.kvcache.storage import KvStorage
from workers.models.lean import make_lean
from workers.models.sharded import make_local
from workers.parallel.group import RankGroup

__all__ = ["prepare_decoder"]

PIECES = (7, 5)  # tokens
# Of the largest logit. bf16 and fp16 round every product; another attention is off by far more.
TOLERANCES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@torch.inference_mode()
def prepare_decoder(model: PreTrainedModel, name: str, group: RankGroup | None = None) -> None:
    """Replace the layers that can be replaced by leaner ones (`workers.models.lean`); with `group`, its shard's.

    All ranks of a group call it together: what is compared then is transformers' own tensor parallelism with ours.
    `ConfigurationError` unless the logits are those of the model before. It has our attention, and is not packed yet.
    """
    tokens = torch.arange(sum(PIECES), device=model.device)[None] * 7 % model.config.get_text_config().vocab_size
    try:
        model.set_attn_implementation("eager")
        reference = model(input_ids=tokens, use_cache=False).logits[0].float()
        model.set_attn_implementation(ATTENTION_NAME)
        if group is not None:
            make_local(model, group)
        make_lean(model)
        ours = _paged(model, tokens, 1 if group is None else group.size)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise ConfigurationError(
            f"{name!r} cannot run on a paged K/V cache: {type(error).__name__}: {first}"
        ) from error
    finite = reference.isfinite()
    if not finite.any():
        raise ConfigurationError(f"{name!r} has no finite logits: its weights hold NaN or Inf, or it has no vocabulary")
    difference = (ours - reference)[finite].abs().max()
    if not difference <= TOLERANCES[model.dtype] * reference[finite].abs().max():
        raise ConfigurationError(
            f"{name!r} does not compute what it should through our attention (logits differ by {difference:.3g}): "
            "it has attention sinks, position biases or layers of another kind, which are not supported"
        )


def _paged(model: PreTrainedModel, tokens: torch.Tensor, ranks: int) -> torch.Tensor:
    """Logits [count, vocab] of one sequence, fed in pieces."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    storage = KvStorage(
        num_layers=config.num_hidden_layers,
        num_slots=tokens.shape[1],
        num_kv_heads=kv_heads // ranks,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=model.dtype,
        device=model.device,
    )
    slots = np.arange(tokens.shape[1], dtype=np.int64)
    logits, start = [], 0
    for length in PIECES:
        piece = slots[start : start + length]
        chunk = SequenceChunk(
            token_ids=tokens[0, start : start + length].tolist(),
            positions=range(start, start + length),
            slots=piece,
            context_slots=slots[:start],
            window_slots=piece,
            mask=causal_mask(length),
            logits_for=range(length),
        )
        context = ForwardContext(
            storage,
            torch.from_numpy(piece).to(model.device),
            build_groups([chunk], heads // kv_heads, model.dtype, model.device),
        )
        positions = torch.arange(start, start + length, device=model.device)[None]
        output = model(
            input_ids=tokens[:, start : start + length],
            position_ids=positions,
            use_cache=False,
            forward_context=context,
        )
        logits.append(output.logits[0].float())
        start += length
    return torch.cat(logits)
