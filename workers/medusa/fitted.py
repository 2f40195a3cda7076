"""Heads that fit the loaded target, packed for its device."""

import torch
from torch import nn
from torch.nn.functional import silu

from workers.core.errors import ConfigurationError
from workers.medusa.checkpoint import HeadsCheckpoint, probe_tokens
from workers.medusa.heads import MedusaHeads
from workers.models.loaded import LoadedModel
from workers.models.packed import bf16_is_native, head_rows, pack_for_cpu

__all__ = ["FittedHeads", "fit_heads"]

_SAME = 0.02  # relative difference of weights that half precision explains (bf16 keeps 8 bits)


def fit_heads(checkpoint: HeadsCheckpoint, loaded: LoadedModel) -> "FittedHeads":
    """Check that the heads belong to the target, and prepare them; raises `ConfigurationError`."""
    _check(checkpoint, loaded)
    rows = None
    if checkpoint.config.original_lm_head and "lm_head.weight" not in checkpoint.weights:
        rows = head_rows(loaded.lm_head, checkpoint.token_map)
    return FittedHeads(checkpoint.build(rows), loaded)


def _check(checkpoint: HeadsCheckpoint, loaded: LoadedModel) -> None:
    who = f"Medusa heads {checkpoint.name!r}"
    made_for = checkpoint.config.outrider.target
    hint = f" (they were trained for {made_for!r})" if made_for else ""
    if checkpoint.hidden_size != loaded.hidden_size:
        raise ConfigurationError(
            f"{who} are for hidden size {checkpoint.hidden_size}, {loaded.name!r} has {loaded.hidden_size}{hint}"
        )
    padded = loaded.model.config.get_text_config().vocab_size
    allowed = sorted({loaded.vocab_size, padded})
    if checkpoint.vocab_size is not None and checkpoint.vocab_size not in allowed:
        raise ConfigurationError(
            f"{who} are for a vocabulary of {checkpoint.vocab_size} tokens, {loaded.name!r} has "
            f"{' or, padded, '.join(map(str, allowed))}{hint}"
        )
    tokens = checkpoint.token_map
    if tokens is not None and int(tokens.max()) >= loaded.vocab_size:
        raise ConfigurationError(
            f"{who}: token_map has token {int(tokens.max())}, the vocabulary of {loaded.name!r} ends at "
            f"{loaded.vocab_size - 1}{hint}"
        )
    _check_same_target(checkpoint, loaded, f"{who} belong to another model than {loaded.name!r}{hint}")


def _check_same_target(checkpoint: HeadsCheckpoint, loaded: LoadedModel, message: str) -> None:
    """Compare rows of the target's LM head with those in the file, however both were rounded."""
    if checkpoint.target_rows is not None:
        probes = probe_tokens(checkpoint.vocab_size or loaded.vocab_size)
        kept, actual = checkpoint.target_rows.float(), head_rows(loaded.lm_head, probes)
    elif "lm_head.weight" in checkpoint.weights:
        kept, actual = checkpoint.weights["lm_head.weight"].float(), head_rows(loaded.lm_head, checkpoint.token_map)
        kept = kept[: len(actual)]
    else:
        return
    if kept.shape != actual.shape or float((kept - actual).norm()) > _SAME * float(actual.norm()):
        raise ConfigurationError(f"{message}: their LM heads differ; train heads for this model, or load that one")


class FittedHeads(nn.Module):
    """All heads for several hidden states at once.

    The first layers of all heads read the same input and are one product; so is a shared LM head over all heads.
    """

    def __init__(self, heads: MedusaHeads, loaded: LoadedModel) -> None:
        super().__init__()
        config = heads.config
        self.num_heads = config.num_heads
        self.token_map = heads.token_map
        self.choices = config.outrider.tree_choices
        self.accuracies = config.outrider.head_accuracies
        self._scale = config.logit_scale
        numbers = range(config.num_heads)
        layers = [heads.layers(number) for number in numbers]
        self.first = _joined([own[0] for own in layers])
        self.later = nn.ModuleList(nn.ModuleList(level) for level in zip(*(own[1:] for own in layers), strict=True))
        shared = config.original_lm_head
        self.lm_heads = nn.ModuleList([heads.head(0)] if shared else [heads.head(number) for number in numbers])
        self.requires_grad_(False)
        self.device = loaded.device
        self._prepare(loaded)

    def _prepare(self, loaded: LoadedModel) -> None:
        on_cpu = loaded.device.type == "cpu"
        self._dtype = torch.float32 if on_cpu and loaded.dtype == "float16" else getattr(torch, loaded.dtype)
        for module in (self.first, self.later, self.lm_heads):
            module.to(device=loaded.device, dtype=self._dtype)
        if self.token_map is not None:
            self.token_map = self.token_map.to(loaded.device)
        if on_cpu and (loaded.dtype != "bfloat16" or bf16_is_native()):
            pack_for_cpu(self, loaded.dtype)

    @torch.inference_mode()
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` [n, hidden_size] -> float32 [n, num_heads, v]."""
        n, size = hidden.shape
        x = hidden.to(self._dtype)[None]  # [1, n, hidden_size]: the packed layers take batches of one
        states = x.repeat(1, 1, self.num_heads)
        states += silu(self.first(x))
        states = states.view(n, self.num_heads, size)
        for level in self.later:
            states = states + silu(_each(level, states))
        if len(self.lm_heads) == 1:
            logits = self.lm_heads[0](states.reshape(1, n * self.num_heads, size)).view(n, self.num_heads, -1)
        else:
            logits = _each(self.lm_heads, states)
        scaled: torch.Tensor = logits.float() if self._scale == 1.0 else logits.float() * self._scale
        return scaled


def _each(layers: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Layer k of `layers` on the states of head k: [n, num_heads, in] -> [n, num_heads, out]."""
    outputs = [layer(states[:, head].contiguous()[None])[0] for head, layer in enumerate(layers.children())]
    return torch.stack(outputs, 1)


def _joined(layers: list[nn.Linear]) -> nn.Linear:
    whole = nn.Linear(layers[0].in_features, sum(layer.out_features for layer in layers), layers[0].bias is not None)
    whole.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]), requires_grad=False)
    if layers[0].bias is not None:
        whole.bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]), requires_grad=False)
    return whole
