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
