"""The heads as a torch module; its state dict has the names under which vLLM stores them."""

import torch
from torch import nn
from torch.nn.functional import linear, silu

from workers.medusa.config import HeadsConfig

__all__ = ["MedusaHeads"]


class _Block(nn.Module):
    def __init__(self, hidden_size: int, num_layers: int, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden_size, hidden_size, bias=bias) for _ in range(num_layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [rows, hidden_size] -> the same
        for layer in self.layers:
            x = x + silu(layer(x))
        return x


class MedusaHeads(nn.Module):
    """Head k (0-based) guesses the token that comes k + 1 after the one chosen from the same hidden state.

    A head is `num_hidden_layers` residual blocks x + SiLU(W x) and an LM head: one for all (`lm_head`, the target's own
    rows) or one for each (`lm_heads`). Blocks start at zero, so that an untrained head says what the target says.

    `token_map` int64 [v]: with a reduced vocabulary, the token that each row of an LM head stands for.
    """

    def __init__(self, config: HeadsConfig, hidden_size: int, num_rows: int, token_map: torch.Tensor | None) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(
            _Block(hidden_size, config.num_hidden_layers, config.medusa_fc_bias) for _ in range(config.num_heads)
        )
        if config.original_lm_head:
            self.lm_head = nn.Linear(hidden_size, num_rows, bias=False)
        else:
            self.lm_heads = nn.ModuleList(nn.Linear(hidden_size, num_rows, bias=False) for _ in range(config.num_heads))
        self.token_map: torch.Tensor | None
        self.register_buffer("token_map", token_map)

    @staticmethod
    def untrained(config: HeadsConfig, rows: torch.Tensor, token_map: torch.Tensor | None) -> "MedusaHeads":
        """Heads that begin as copies of the target's own; `rows` [v, hidden_size] of its LM head."""
        heads = MedusaHeads(config, rows.shape[1], rows.shape[0], token_map)
        with torch.no_grad():
            for head in range(config.num_heads):
                heads.head(head).weight.copy_(rows)
                for layer in heads.layers(head):
                    nn.init.zeros_(layer.weight)
                    if layer.bias is not None:
                        nn.init.zeros_(layer.bias)
        return heads

    def head(self, index: int) -> nn.Linear:
        """LM head number `index`."""
        found = self.lm_head if self.config.original_lm_head else self.lm_heads[index]
        assert isinstance(found, nn.Linear)  # noqa: S101 - for the type checker
        return found

    def layers(self, index: int) -> list[nn.Linear]:
        """Residual layers of head `index`."""
        return [layer for layer in self.blocks[index].modules() if isinstance(layer, nn.Linear)]

    def logits(self, index: int, hidden: torch.Tensor) -> torch.Tensor:
        """What head `index` says of `hidden` [rows, hidden_size]; [rows, v]."""
        return linear(self.blocks[index](hidden), self.head(index).weight) * self.config.logit_scale
