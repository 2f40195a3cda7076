"""A probe of the tiny model that needs no drafter."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workers.core.config import ModelConfig
from workers.probe.config import ProbeConfig, ProposerConfig


@pytest.fixture
def lookup_config(tiny_target: Path, tmp_path: Path) -> Callable[..., ProbeConfig]:
    """Prompt lookup on three prompts that repeat themselves; what else is to be set are the arguments."""

    def build(**settings: Any) -> ProbeConfig:
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"one two {n} one two {n} one"}) + "\n" for n in range(3)))
        return ProbeConfig(
            target=ModelConfig(model=str(tiny_target), dtype="float32"),
            proposers={"lookup": ProposerConfig(method="ngram")},
            prompts=prompts,
            **settings,
        )

    return build
