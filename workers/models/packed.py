"""CPU layers whose weights are packed once for the fastest kernel of their type.

=========  ======================================  =============================================
dtype      kernel                                  arithmetic
=========  ======================================  =============================================
float32    oneDNN, prepacked                       fp32
bfloat16   oneDNN, prepacked                       bf16 products, fp32 sums; needs a CPU with bf16
float16    FBGEMM, prepacked                       fp16 weights, fp32 activations and sums
=========  ======================================  =============================================

Without packing, PyTorch repacks a weight at every call, which costs more than the multiplication of a few rows.
On CPUs without bf16 arithmetic (AVX2), float16 is the fastest: half the memory traffic, full fp32 arithmetic.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from workers.core.errors import ConfigurationError

__all__ = ["bf16_is_native", "head_rows", "pack_for_cpu", "padded_rows"]

ROWS_HINT = 16  # oneDNN chooses a layout for about this many rows


def padded_rows(rows: int) -> int:
    """Round up to one of a few row counts.

    oneDNN compiles a kernel for each number of rows and PyTorch keeps a thousand of them, about half a megabyte each:
    ragged batches of every size would fill the memory and pay for compilation again and again.
    """
    step = 1 if rows <= 4 else 4 if rows <= 32 else 16 if rows <= 128 else 64
    return -(-rows // step) * step


def bf16_is_native() -> bool:
    """Whether this CPU multiplies bf16 with oneDNN kernels."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _OneDnnLinear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS_HINT)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [..., rows, in] -> [..., rows, out]
        rows = x.shape[-2]
        extra = padded_rows(rows) - rows
        if extra:
            x = nn.functional.pad(x, (0, 0, 0, extra))
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y[..., :rows, :] if extra else y


class _Fp16Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(linear.weight.detach(), linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)  # type: ignore[no-any-return]


class _Fp16Embedding(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = nn.Parameter(embedding.weight.detach().half(), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.weight).float()


def pack_for_cpu(model: nn.Module, dtype: str) -> None:
    """Replace every `nn.Linear` (and, for float16, the embedding) of an fp32 or bf16 model in place.

    Layers that transformers itself has cut for tensor parallelism stay as they are.
    """
    if dtype == "float16" and "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ConfigurationError("dtype float16 on the CPU needs a PyTorch build with FBGEMM; use float32 or bfloat16")
    packed = _Fp16Linear if dtype == "float16" else _OneDnnLinear
    for parent, name, layer in list(_layers(model)):
        if type(layer) is nn.Linear and not isinstance(layer.weight, DTensor):
            setattr(parent, name, packed(layer))
        elif type(layer) is nn.Embedding and dtype == "float16":
            setattr(parent, name, _Fp16Embedding(layer))


def head_rows(head: nn.Module, token_ids: torch.Tensor | None = None) -> torch.Tensor:
    """Rows of an LM head, packed or not, that belong to `token_ids` (None = all): float32 [n, in] on the CPU."""
    if isinstance(head, _Fp16Linear):
        weight, _ = torch.ops.quantized.linear_unpack_fp16(head.packed)
    elif isinstance(head, _OneDnnLinear):
        weight = head.weight.to_dense()
    else:
        weight = head.get_parameter("weight").detach()
    rows: torch.Tensor = weight if token_ids is None else weight[token_ids.to(weight.device)]
    return rows.float().cpu()


def _layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in model.modules():
        for name, layer in parent.named_children():
            yield parent, name, layer
