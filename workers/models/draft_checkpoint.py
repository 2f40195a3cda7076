"""A draft that is stored as its difference from a target: some of the target's layers, trained further.

    draft.json           base model, layers taken from it, vocabulary size
    draft.safetensors    weights of those layers and of the final norm; `vocabulary`, when it is a reduced one
    provenance.json      the command and data that made it

Embeddings and LM head are the base's own. `outrider model export` writes a plain transformers folder.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Self

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.models.sharded import like
from workers.models.tensor_file import save_tensors
from workers.text.source import DRAFT_DESCRIPTION

__all__ = ["DraftCheckpoint", "ReducedHead", "keep_layers"]

DESCRIPTION, WEIGHTS, VOCABULARY = DRAFT_DESCRIPTION, "draft.safetensors", "vocabulary"
PREFIXES = ("layers.", "norm.")  # of a base model's parameters that are trained


@dataclass(frozen=True)
class DraftCheckpoint:
    """What `draft.json` says."""

    base: str  # hub id, folder or GGUF file of the target
    layers: Annotated[tuple[int, ...], Field(min_length=1)]
    hidden_size: int
    vocab_size: int  # of the base

    @classmethod
    def read(cls, ref: str) -> Self | None:
        """None when `ref` is not a draft checkpoint; raises `ConfigurationError` for a broken one."""
        path = Path(ref) / DESCRIPTION
        if not path.is_file():
            return None
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ConfigurationError(f"draft checkpoint {ref!r}: {DESCRIPTION}: {where}: {first['msg']}") from None
        except OSError as error:
            raise ConfigurationError(f"draft checkpoint {ref!r}: {DESCRIPTION} cannot be read ({error})") from None

    def write(self, folder: Path, model: PreTrainedModel, vocabulary: torch.Tensor | None) -> None:
        """Store the trained parameters of `model` (its layers are those of `layers`) in fp16.

        Raises `OSError` when they cannot be written.
        """
        state = model.base_model.state_dict()
        tensors = {n: t.detach().half().contiguous() for n, t in state.items() if n.startswith(PREFIXES)}
        if vocabulary is not None:
            tensors[VOCABULARY] = vocabulary.to(torch.int32)
        save_tensors(tensors, folder / WEIGHTS)
        (folder / DESCRIPTION).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def apply(self, ref: str, model: PreTrainedModel) -> None:
        """Turn the base model into the draft. Raises `ConfigurationError` where they do not fit."""
        config = model.config.get_text_config()
        for name in ("hidden_size", "vocab_size"):
            if getattr(config, name) != getattr(self, name):
                raise ConfigurationError(
                    f"draft checkpoint {ref!r} was trained from a model with {name} {getattr(self, name)}, "
                    f"the base model has {getattr(config, name)}; set `base` to the right one"
                )
        keep_layers(model, self.layers)
        try:
            tensors = load_file(Path(ref) / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise ConfigurationError(f"draft checkpoint {ref!r}: {WEIGHTS} cannot be read ({error})") from None
        vocabulary = tensors.pop(VOCABULARY, None)
        own = {n: p for n, p in model.base_model.state_dict().items() if n.startswith(PREFIXES)}
        if {n: t.shape for n, t in tensors.items()} != {n: p.shape for n, p in own.items()}:
            raise ConfigurationError(f"draft checkpoint {ref!r}: its weights do not fit the layers of the base model")
        model.base_model.load_state_dict({n: like(t, own[n]) for n, t in tensors.items()}, strict=False)
        if vocabulary is not None:
            _check_vocabulary(ref, vocabulary, self.vocab_size)
            head = ReducedHead(model.get_output_embeddings(), vocabulary.long())
            model.set_output_embeddings(head)


def _check_vocabulary(ref: str, vocabulary: torch.Tensor, vocab_size: int) -> None:
    integers = not vocabulary.is_floating_point() and vocabulary.dim() == 1 and len(vocabulary) > 0
    if not integers or vocabulary[0] < 0 or vocabulary[-1] >= vocab_size or not (vocabulary.diff() > 0).all():
        raise ConfigurationError(
            f"draft checkpoint {ref!r}: {VOCABULARY} must be ascending token ids from 0 to {vocab_size - 1}"
        )


class ReducedHead(nn.Module):
    """An LM head over some tokens only: `vocabulary`, int64 [v], ascending."""

    def __init__(self, head: nn.Linear, vocabulary: torch.Tensor) -> None:
        super().__init__()
        self.rows = nn.Linear(head.in_features, len(vocabulary), bias=False, dtype=head.weight.dtype)
        self.rows.weight = nn.Parameter(head.weight[vocabulary].detach().clone(), requires_grad=False)
        self.vocabulary: torch.Tensor
        self.register_buffer("vocabulary", vocabulary)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [1, rows, hidden] -> [1, rows, v]
        y: torch.Tensor = self.rows(x)
        return y


def keep_layers(model: PreTrainedModel, layers: tuple[int, ...]) -> None:
    """Keep the given decoder layers of any target."""
    decoder = model.base_model
    available = len(decoder.layers)
    if list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] < available:
        raise ConfigurationError(f"layers must be ascending indices from 0 to {available - 1}, got {list(layers)}")
    decoder.layers = nn.ModuleList(decoder.layers[i] for i in layers)
    for index, layer in enumerate(decoder.layers):
        layer.self_attn.layer_idx = index
    model.config.get_text_config().num_hidden_layers = len(layers)
