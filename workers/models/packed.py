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

from workers.core.errors import ConfigurationError

__all__ = ["bf16_is_native", "head_rows", "pack_for_cpu", "padded_rows"]

SHARING_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # names in most decoders of transformers
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


class _FusedLinears:
    """Linear layers of one parent that read the same input, multiplied at once.

    A call has a cost of its own, which for small matrices is as large as the product: q, k, v together and gate, up
    together save 90 of the 211 calls of a 30-layer model. The first part computes all, the others find their share by
    the identity of the input.
    """

    def __init__(self, layers: list[nn.Linear], packed: type[_OneDnnLinear] | type[_Fp16Linear]) -> None:
        self._sizes = [layer.out_features for layer in layers]
        whole = nn.Linear(layers[0].in_features, sum(self._sizes), bias=layers[0].bias is not None)
        whole.weight = nn.Parameter(torch.cat([layer.weight.detach() for layer in layers]), requires_grad=False)
        if layers[0].bias is not None:
            whole.bias = nn.Parameter(torch.cat([layer.bias.detach() for layer in layers]), requires_grad=False)
        self._linear = packed(whole)
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()

    def part(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Output of layer `index` for `x`."""
        if x is not self._input:
            self._input, self._outputs = x, self._linear(x).split(self._sizes, dim=-1)
        output = self._outputs[index]
        if index == len(self._sizes) - 1:
            self._input, self._outputs = None, ()  # nothing is kept beyond the layer
        return output


class _Part(nn.Module):
    def __init__(self, whole: _FusedLinears, index: int) -> None:
        super().__init__()
        self._whole = whole
        self._index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._whole.part(self._index, x)


def _fuse(parent: nn.Module, names: tuple[str, ...], packed: type[_OneDnnLinear] | type[_Fp16Linear]) -> None:
    """Replace the named children of `parent` by parts of one product, where all are there and alike."""
    layers = [getattr(parent, name, None) for name in names]
    linears = [layer for layer in layers if type(layer) is nn.Linear]
    alike = len({(layer.in_features, layer.bias is None) for layer in linears}) == 1
    if len(linears) == len(names) and alike:
        whole = _FusedLinears(linears, packed)
        for index, name in enumerate(names):
            setattr(parent, name, _Part(whole, index))


class _Fp16Embedding(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = nn.Parameter(embedding.weight.detach().half(), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.weight).float()


def pack_for_cpu(model: nn.Module, dtype: str) -> None:
    """Replace every `nn.Linear` (and, for float16, the embedding) of an fp32 or bf16 model in place."""
    if dtype == "float16" and "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ConfigurationError("dtype float16 on the CPU needs a PyTorch build with FBGEMM; use float32 or bfloat16")
    packed = _Fp16Linear if dtype == "float16" else _OneDnnLinear
    for parent in list(model.modules()):
        for names in SHARING_INPUT:
            _fuse(parent, names, packed)
    for parent, name, layer in list(_layers(model)):
        if type(layer) is nn.Linear:
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
