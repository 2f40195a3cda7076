"""Folders of Medusa heads: config.json and one file of weights, under vLLM's names.

    blocks.{head}.layers.{layer}.weight   [hidden_size, hidden_size]
    lm_head.weight                        [v, hidden_size]     one for all, or
    lm_heads.{head}.weight                [v, hidden_size]     one for each
    token_map                             int64 [v]            only with a reduced vocabulary
    outrider.target_rows                  [n, hidden_size]     ours: rows of the target's LM head, to tell targets apart

The names of the first Medusa checkpoints ({head}.{layer}.linear.weight, {head}.{last}.weight) are read too.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from workers.core.errors import ConfigurationError, NotFoundError
from workers.medusa.config import FILE, HeadsConfig
from workers.medusa.heads import MedusaHeads
from workers.medusa.layout import Weights, check_layout, check_token_map, plain_name
from workers.models.tensor_file import save_tensors

__all__ = ["HeadsCheckpoint", "probe_tokens", "write_heads"]

WEIGHTS = "model.safetensors"
TARGET_ROWS = "outrider.target_rows"
SUFFIXES = (".safetensors", ".pt", ".bin")
_PROBES = 16
_DAMAGED = (OSError, SafetensorError, RuntimeError, AttributeError, EOFError, ValueError, pickle.UnpicklingError)


def probe_tokens(vocab_size: int) -> torch.Tensor:
    """Tokens whose rows of the target's LM head are kept with the heads."""
    return torch.tensor(sorted({index * vocab_size // _PROBES for index in range(_PROBES)}))


def write_heads(folder: Path, heads: MedusaHeads, config: HeadsConfig, target_rows: torch.Tensor) -> None:
    """Write config and weights (fp16) into an existing folder; `target_rows` belong to `probe_tokens`.

    Raises `OSError` when they cannot be written.
    """
    weights = {
        name: tensor.detach().cpu().contiguous().to(torch.float16 if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in heads.state_dict().items()
    }
    weights[TARGET_ROWS] = target_rows.detach().cpu().half().contiguous()
    save_tensors(weights, folder / WEIGHTS)
    config.write(folder)


@dataclass(frozen=True)
class HeadsCheckpoint:
    """What a folder holds, checked against its own configuration."""

    name: str
    config: HeadsConfig
    hidden_size: int
    vocab_size: int | None  # None: neither configuration nor weights tell
    weights: Weights  # blocks and LM heads
    token_map: torch.Tensor | None
    target_rows: torch.Tensor | None

    @staticmethod
    def read(ref: str) -> "HeadsCheckpoint":
        """Raises `NotFoundError` or `ConfigurationError` that names what is missing or does not fit."""
        folder, where = Path(ref), f"Medusa heads {ref!r}"
        if not (folder / FILE).is_file():
            raise NotFoundError(
                f"{where}: there is no {FILE} in such a folder; `outrider train medusa` writes one, and heads from a "
                "hub have to be downloaded first"
            )
        config = HeadsConfig.read(folder)
        raw = _read_weights(where, folder)
        token_map, target_rows = raw.pop("token_map", None), raw.pop(TARGET_ROWS, None)
        weights = _used({plain_name(name): tensor for name, tensor in raw.items()}, config)
        if any(name.startswith("blocks.") and name.endswith(".bias") for name in weights):
            config = config.model_copy(update={"medusa_fc_bias": True})
        check_token_map(where, config, token_map)
        if config.truncated_vocab_size is None:
            token_map = None
        else:
            weights = {name: _reduced(name, tensor, token_map) for name, tensor in weights.items()}
        sample = weights.get("blocks.0.layers.0.weight")
        hidden_size = config.hidden_size or (0 if sample is None else int(sample.shape[-1]))
        lm_rows = next((len(tensor) for name, tensor in weights.items() if name.startswith("lm_head")), None)
        vocab_size = config.vocab_size or (lm_rows if token_map is None else None)
        check_layout(where, config, hidden_size, config.truncated_vocab_size or vocab_size, weights)
        tokens = None if token_map is None else token_map.to(torch.int64)
        return HeadsCheckpoint(ref, config, hidden_size, vocab_size, weights, tokens, target_rows)

    def build(self, lm_rows: torch.Tensor | None = None) -> MedusaHeads:
        """The module, fp32. `lm_rows` [v, hidden_size] are the target's, for a shared head that is not in the file."""
        weights = {name: tensor.float() for name, tensor in self.weights.items()}
        if lm_rows is not None:
            weights["lm_head.weight"] = lm_rows.float()
        rows = next(tensor.shape[0] for name, tensor in weights.items() if name.startswith("lm_head"))
        heads = MedusaHeads(self.config, self.hidden_size, rows, self.token_map)
        heads.load_state_dict(weights if self.token_map is None else {**weights, "token_map": self.token_map})
        return heads.eval().requires_grad_(False)


def _read_weights(where: str, folder: Path) -> Weights:
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    safe = [path for path in paths if path.suffix == ".safetensors"]
    weights: Weights = {}
    for path in safe or paths:
        try:
            part: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
            weights.update({str(name): tensor for name, tensor in part.items() if isinstance(tensor, torch.Tensor)})
        except _DAMAGED as error:
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise ConfigurationError(f"{where}: {path.name} is damaged or was cut off ({why})") from None
    if not weights:
        raise NotFoundError(f"{where}: no weights in the folder (looked for {WEIGHTS}, *.pt and *.bin)")
    return weights


def _used(weights: Weights, config: HeadsConfig) -> Weights:
    """Without what vLLM does not use either: a shared head beside own ones, own ones beside a shared one."""
    if not config.original_lm_head:
        return {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    if "lm_head.weight" not in weights and "lm_heads.0.weight" in weights:
        weights["lm_head.weight"] = weights["lm_heads.0.weight"]
    return {name: tensor for name, tensor in weights.items() if not name.startswith("lm_heads.")}


def _reduced(name: str, tensor: torch.Tensor, token_map: torch.Tensor | None) -> torch.Tensor:
    """Files may hold whole LM heads beside a token map."""
    if token_map is None or not name.startswith("lm_head") or len(tensor) <= int(token_map.max()):
        return tensor
    return tensor if len(tensor) == len(token_map) else tensor[token_map.to(torch.int64)]
