"""The model under training: layers that are skipped at random, and a loss behind each of them."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.training.layerskip.config import Recipe
from workers.training.layerskip.schedule import dropout_rates, exit_weights

__all__ = ["LayerSkipStudent"]

MOST_METRICS = 8  # exits that are reported


class LayerSkipStudent(nn.Module):
    """`forward(input_ids)` returns `loss` and, in evaluation, for some exits how often they agree with the last layer.

    `step` and `num_steps` are set from outside. In evaluation no layer is skipped, and `loss` is the last layer's.
    """

    def __init__(self, model: PreTrainedModel, recipe: Recipe) -> None:
        super().__init__()
        decoder = model.base_model
        if not hasattr(decoder, "layers") or not hasattr(decoder, "norm"):
            raise ConfigurationError("only models with `layers` and `norm` can be trained for early exits")
        self.model = model
        self.step, self.num_steps = 0, 1
        self._recipe = recipe
        self._num_layers = len(decoder.layers)
        self._norm = [decoder.norm]  # in lists: these modules are the model's, not ours
        self._head = [model.get_output_embeddings()]
        self._states: list[torch.Tensor] = []
        self._rates: list[float] = []
        for layer in decoder.layers:
            layer.register_forward_hook(self._after_layer, with_kwargs=True)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """`input_ids` [batch, length]: whole sequences without padding."""
        self._states = []
        self._rates = dropout_rates(self._recipe, self._num_layers, self.step, self.num_steps)
        self.model.base_model(input_ids=input_ids, use_cache=False)
        states, self._states = self._states, []
        return self._training_loss(states, input_ids) if self.training else self._metrics(states, input_ids)

    def _after_layer(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> torch.Tensor:
        """Undo the layer for some of the sequences, and keep its output."""
        after: torch.Tensor = output if isinstance(output, torch.Tensor) else output[0]
        rate = self._rates[len(self._states)]
        if self.training and rate > 0.0:
            before = args[0] if args else kwargs["hidden_states"]
            kept = torch.rand(len(after)) >= rate
            after = torch.where(kept.to(after.device)[:, None, None], after, before)
        self._states.append(after)
        return after

    def _training_loss(self, states: list[torch.Tensor], input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        weights = exit_weights(self._recipe, self._num_layers, self.step, self.num_steps)
        losses = [w * _loss(self._exit(s), input_ids) for w, s in zip(weights, states, strict=True) if w > 0.0]
        return {"loss": torch.stack(losses).sum()}

    def _metrics(self, states: list[torch.Tensor], input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        last = self._exit(states[-1])
        best = last.argmax(-1)
        metrics = {"loss": _loss(last, input_ids)}
        every = -(-self._num_layers // MOST_METRICS)
        for number in range(every, self._num_layers, every):
            agrees = self._exit(states[number - 1]).argmax(-1) == best
            metrics[f"agreement_of_layer_{number}"] = agrees.float().mean()
        return metrics

    def _exit(self, states: torch.Tensor) -> torch.Tensor:
        """Logits of the shared head, [batch, length, vocab]."""
        logits: torch.Tensor = self._head[0](self._norm[0](states))
        return logits


def _loss(logits: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), input_ids[:, 1:].flatten())
