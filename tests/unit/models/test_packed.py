"""Packed linear layers: right for every number of rows, and few kernels for all of them."""

import pytest
import torch
from torch import nn

from workers.models.packed import pack_for_cpu, padded_rows


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_number_of_rows(dtype: str, bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 40, bias=bias))
    weight, offset = model[0].weight.detach().clone(), model[0].bias
    if dtype == "float16":
        weight = weight.half().float()
    pack_for_cpu(model, dtype)
    for rows in (1, 2, 3, 5, 7, 16, 17, 31, 33, 70, 130, 200):
        x = torch.randn(1, rows, 48)
        expected = nn.functional.linear(x, weight, offset)
        assert torch.allclose(model(x), expected, atol=1e-5), rows
        assert torch.allclose(model(x[0]), expected[0], atol=1e-5), rows


def test_row_counts_are_few_and_never_too_small() -> None:
    padded = [padded_rows(rows) for rows in range(1, 513)]
    assert all(p >= rows for rows, p in enumerate(padded, 1))
    assert len(set(padded)) <= 25
    assert all(p - rows <= rows // 2 + 1 for rows, p in enumerate(padded, 1)), "little is wasted"


class _Attention(nn.Module):
    """Names as in transformers' decoders."""

    def __init__(self, *, bias: bool, narrow_v: bool = False) -> None:
        super().__init__()
        self.q_proj = nn.Linear(48, 40, bias=bias)
        self.k_proj = nn.Linear(48, 24, bias=bias)
        self.v_proj = nn.Linear(32 if narrow_v else 48, 24, bias=bias)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [
            layer(x[..., : layer.in_features]) if isinstance(layer, nn.Linear) else layer(x)
            for layer in self.children()
        ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_that_share_an_input_are_one_product(dtype: str, bias: bool) -> None:
    torch.manual_seed(0)
    fused, alone = _Attention(bias=bias), nn.ModuleDict()
    for name, layer in fused.named_children():
        alone[name] = nn.Sequential(nn.Linear(48, layer.out_features, bias=bias))
        alone[name][0].load_state_dict(layer.state_dict())
    pack_for_cpu(fused, dtype)
    pack_for_cpu(alone, dtype)
    for rows in (1, 3, 17):
        for x in (torch.randn(1, rows, 48), torch.randn(1, rows, 48)):  # a second input is not mistaken for the first
            for output, name in zip(fused(x), alone, strict=True):
                assert torch.allclose(output, alone[name](x), atol=1e-6)


def test_layers_with_different_inputs_stay_apart() -> None:
    torch.manual_seed(0)
    model = _Attention(bias=False, narrow_v=True)
    weight = model.q_proj.weight.detach().clone()
    pack_for_cpu(model, "float32")
    x = torch.randn(1, 2, 48)
    assert torch.allclose(model.q_proj(x), x @ weight.T, atol=1e-5)
    assert model.v_proj(x[..., :32]).shape == (1, 2, 24)
