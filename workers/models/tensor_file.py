"""Weights on disk: a disk that is full is an `OSError`, whatever the library says."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

__all__ = ["save_tensors", "saving"]


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Around code that writes weights to `path`: raises `OSError` with that path when they cannot be written."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from None


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """A safetensors file, which transformers reads too. Raises `OSError` when it cannot be written."""
    with saving(path):
        save_file(dict(tensors), path, metadata={"format": "pt"})
