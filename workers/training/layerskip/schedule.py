"""The recipe's numbers by layer and step: layer dropout, weights of the exits, curriculum.

Layers are counted from 0 to L - 1, steps from 0 to T - 1. Source: Elhoushi et al. 2024, "LayerSkip: Enabling early exit
inference and self-speculative decoding", section 4.1.
"""

import math

from workers.training.layerskip.config import Recipe

__all__ = ["dropout_rates", "exit_weights"]


def dropout_rates(recipe: Recipe, num_layers: int, step: int, num_steps: int) -> list[float]:
    """p(l, t) = S(t) D(l) p_max, where D and S grow exponentially from 0 to 1; S is 1 unless the rate grows in time."""
    over_time = _growth(step, num_steps) if recipe.dropout_grows else 1.0
    return [over_time * _growth(layer, num_layers) * recipe.layer_dropout for layer in range(num_layers)]


def exit_weights(recipe: Recipe, num_layers: int, step: int, num_steps: int) -> list[float]:
    """Weights of the losses of all layers' exits; they sum to 1, and layers that the curriculum leaves out have 0."""
    weights = [
        _weight(layer, num_layers, recipe.early_exit_scale)
        if _has_exit(recipe, layer, num_layers, step, num_steps)
        else 0.0
        for layer in range(num_layers)
    ]
    total = sum(weights)
    return [weight / total for weight in weights]


def _growth(index: int, count: int) -> float:
    """From 0 at the first to 1 at the last, exponentially."""
    return math.expm1(index * math.log(2.0) / (count - 1)) if count > 1 else 1.0


def _weight(layer: int, num_layers: int, scale: float) -> float:
    """e(l): later exits are easier and weigh more, the last one most."""
    last = num_layers - 1
    return last + scale * (last - 1) * last / 2 if layer == last else scale * layer * (layer + 1) / 2


def _has_exit(recipe: Recipe, layer: int, num_layers: int, step: int, num_steps: int) -> bool:
    if layer == num_layers - 1 or recipe.curriculum == "none":
        return True
    if recipe.curriculum == "rotational":
        return layer % recipe.rotation == step % recipe.rotation
    return step * 2 * num_layers >= (num_layers - 1 - layer) * num_steps  # one layer more every T / (2 L) steps
