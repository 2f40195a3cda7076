"""Runs a decoder's layers in two parts: 1..E now, the others later from the hidden states that the first part left.

transformers' own forward does both: the list of layers is swapped for a part of itself, and the second part starts
from `inputs_embeds`. Attention finds the K/V of a layer by the layer's own number, which it keeps. The early part ends,
like the whole model, in the final norm and the LM head: the shared head of an early exit (Elhoushi et al. 2024,
"LayerSkip", section 4.3).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.core.errors import ConfigurationError
from workers.models.loaded import LoadedModel

__all__ = ["LayerSplit", "probe_chunk"]

PROBE_TOKENS = 8


class LayerSplit:
    """The two parts of one loaded model. Raises `ConfigurationError` for a model that cannot be cut at E."""

    def __init__(self, loaded: LoadedModel, exit_layer: int) -> None:
        _check(loaded, exit_layer)
        self.exit_layer = exit_layer
        self._decoder = loaded.model.base_model
        layers = self._decoder.layers
        self._whole = layers
        self._early = nn.ModuleList(layers[:exit_layer])
        self._late = nn.ModuleList(layers[exit_layer:])
        self._states: torch.Tensor | None = None

    def _keep_states(self, _: nn.Module, __: tuple[Any, ...], output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        self._states = output if isinstance(output, torch.Tensor) else output[0]

    def take_states(self) -> torch.Tensor:
        """Output of layer E in the last early forward, [tokens, hidden_size]."""
        states, self._states = self._states, None
        if states is None:
            raise RuntimeError("no early forward has run")
        return states[0]

    @contextmanager
    def early(self) -> Iterator[None]:
        """The model is layers 1..E and its head."""
        self._decoder.layers = self._early
        handle = self._early[-1].register_forward_hook(self._keep_states)
        try:
            yield
        finally:
            handle.remove()
            self._decoder.layers = self._whole

    @contextmanager
    def late(self) -> Iterator[None]:
        """The model is the layers behind E and its head; feed it with `inputs_embeds`."""
        self._decoder.layers = self._late
        try:
            yield
        finally:
            self._decoder.layers = self._whole


def _check(loaded: LoadedModel, exit_layer: int) -> None:
    if not 1 <= exit_layer < loaded.num_layers:
        raise ConfigurationError(
            f"exit_layer {exit_layer} is outside the model: {loaded.name!r} has {loaded.num_layers} layers, "
            + (f"allowed are 1 to {loaded.num_layers - 1}" if loaded.num_layers > 1 else "too few to skip any")
        )
    layers = getattr(loaded.model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) != loaded.num_layers:
        raise ConfigurationError(f"{loaded.name!r} cannot exit early: its decoder has no plain list of layers")
    if len({type(layer) for layer in layers}) > 1 or len(set(_layer_types(loaded))) > 1:
        raise ConfigurationError(f"{loaded.name!r} cannot exit early: its layers are not all of one kind")


def _layer_types(loaded: LoadedModel) -> list[str]:
    """Kinds of attention by layer, as far as the model's settings tell them apart."""
    return getattr(loaded.model.config.get_text_config(), "layer_types", None) or []


def probe_chunk(vocab_size: int, num_slots: int) -> SequenceChunk:
    """A few tokens in the first slots, to compare passes with."""
    count = min(PROBE_TOKENS, num_slots)
    slots = np.arange(count)
    tokens = [(7 * index + 3) % vocab_size for index in range(count)]
    return SequenceChunk(tokens, range(count), slots, slots[:0], slots, causal_mask(count), range(count))
