"""A rank's shard of a decoder: transformers cuts it while loading, and here it becomes ordinary layers.

transformers' tensor parallelism holds parameters as `DTensor` behind rewritten `forward` methods. It is what reads the
shard of a rank only, and what our layers are compared with. To run, column-wise layers (q, k, v, gate, up) become
plain `nn.Linear` with the rank's outputs, and row-wise ones (o, down) a `nn.Linear` with an all-reduce behind it, which
lean decoders and packing take like any other. Embedding and LM head are whole on every rank: the plan says "replicate".
"""

import re
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel
from transformers.distributed import DistributedConfig

from workers.core.errors import ConfigurationError
from workers.parallel.group import RankGroup

__all__ = ["RowParallelLinear", "check_plan", "like", "make_local", "parallel_options", "whole"]

HEADS_BY_COLUMN = ("q_proj", "k_proj", "v_proj")  # what must be cut for the K/V pool to be cut
NUMBERS = re.compile(r"\d+")  # of layers, in the names of a plan
REPLICATED = ("model.embed_tokens", "lm_head")


class RowParallelLinear(nn.Module):
    """A rank's share of the inputs of a linear layer, then the sum over all ranks. [..., in / ranks] to [..., out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, group: RankGroup) -> None:
        super().__init__()
        self.linear = _linear(weight, None)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self._group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        self._group.all_reduce(y)
        return y if self.bias is None else y.add_(self.bias)


def check_plan(name: str, config: Any) -> None:
    """Raise `ConfigurationError` unless transformers can cut decoders with this `config`, attention heads included."""
    plan: dict[str, str] = getattr(config, "base_model_tp_plan", None) or {}
    styles = {rule.rsplit(".", 1)[-1]: style for rule, style in plan.items()}
    missing = [layer for layer in HEADS_BY_COLUMN if styles.get(layer) != "colwise"]
    if missing:
        raise ConfigurationError(
            f"{name!r}: tensor_parallel_size above 1 needs a model whose {', '.join(HEADS_BY_COLUMN)} transformers can "
            f"cut by heads; its plan for {getattr(config, 'model_type', 'this kind')} has none for {', '.join(missing)}"
        )


def parallel_options(size: int) -> dict[str, Any]:
    """Arguments of `from_pretrained` that make it load the shard of this process's rank."""
    return {"distributed_config": DistributedConfig(tp_size=size, tp_plan=dict.fromkeys(REPLICATED, "replicate"))}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a parameter; every rank of the group calls it for the same one."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A whole tensor, cut like `parameter`."""
    if not isinstance(parameter, DTensor):
        return tensor
    own = tensor.to(device=parameter.device, dtype=parameter.dtype)
    return distribute_tensor(own, parameter.device_mesh, parameter.placements, src_data_rank=None)


def make_local(model: PreTrainedModel, group: RankGroup) -> None:
    """Replace every linear layer that is cut by columns or rows; others keep transformers' own hooks."""
    plan = {NUMBERS.sub("*", rule): style for rule, style in model.tp_plan.items()}
    for path, layer in list(model.named_modules()):
        style = plan.get(NUMBERS.sub("*", path))
        if type(layer) is not nn.Linear or style not in ("colwise", "rowwise"):
            continue
        weight = _local(layer.weight)
        bias = None if layer.bias is None else _local(layer.bias)
        local = _linear(weight, bias) if style == "colwise" else RowParallelLinear(weight, bias, group)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, local)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
