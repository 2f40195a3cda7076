"""A pass in two parts against the whole pass: same logits, same K/V, same hidden states."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes.engines import tiny_loaded
from tests.unit.models.test_execution import TOKENS, chunk, runner_for, scattered
from workers.attention.forward_context import SequenceChunk
from workers.core.errors import ConfigurationError
from workers.models.loaded import LoadedModel
from workers.runner.model_runner import EarlyRows, ModelRunner


@pytest.fixture(scope="module")
def loaded(tiny_target: Path) -> LoadedModel:
    return tiny_loaded(tiny_target)


def split_runner(loaded: LoadedModel, exit_layer: int) -> ModelRunner:
    runner = runner_for(loaded)
    runner.split_at(exit_layer)
    return runner


def tree_chunk(slots: np.ndarray) -> SequenceChunk:
    """Root and two branches behind 20 committed tokens."""
    tokens = [TOKENS[20], 99, TOKENS[21], 98, TOKENS[22]]
    visible = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    mask = torch.zeros(5, 5, dtype=torch.bool)
    for row, columns in enumerate(visible):
        mask[row, columns] = True
    window = slots[20:25]
    return SequenceChunk(tokens, [20, 21, 21, 22, 22], window, slots[:20], window, mask, range(5))


@pytest.mark.parametrize("exit_layer", [1, 2])
def test_two_parts_are_the_whole(loaded: LoadedModel, exit_layer: int) -> None:
    """Root and first level drafted early, the second level not; beside it a prefill that was not drafted at all."""
    slots, others = scattered(0), scattered(1)
    whole = runner_for(loaded)
    whole.forward([chunk(slots, 0, 20)])
    expected = whole.forward([tree_chunk(slots), chunk(others, 0, 9)])

    runner = split_runner(loaded, exit_layer)
    runner.forward([chunk(slots, 0, 20)])
    tree = tree_chunk(slots)
    states = [runner.exit_early([tree.select([0])])[0].states, runner.exit_early([tree.select([1, 2])])[0].states]
    outputs = runner.forward([tree, chunk(others, 0, 9)], [EarlyRows([0, 1, 2], torch.cat(states)), None])
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.logits, right.logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(output.hidden, right.hidden, atol=1e-5, rtol=0)
    used = torch.from_numpy(np.concatenate([slots[:25], others[:9]]))
    torch.testing.assert_close(runner.storage.data[:, used], whole.storage.data[:, used], atol=1e-5, rtol=0)


def test_the_early_head_is_the_model_without_its_other_layers(loaded: LoadedModel, tiny_target: Path) -> None:
    from workers.core.config import ModelConfig
    from workers.models.loader import load_model

    short = load_model(ModelConfig(model=str(tiny_target), dtype="float32", num_threads=1, layers=(0, 1)))
    expected = runner_for(short).forward([chunk(scattered(0), 0, 12)])[0].logits
    [output] = split_runner(loaded, 2).exit_early([chunk(scattered(0), 0, 12)])
    torch.testing.assert_close(output.logits, expected, atol=1e-5, rtol=0)
    assert output.states.shape == (12, loaded.hidden_size)


@pytest.mark.parametrize("exit_layer", [0, 3, 7])
def test_an_exit_outside_the_layers_is_refused(loaded: LoadedModel, exit_layer: int) -> None:
    with pytest.raises(ConfigurationError, match=r"outside the model.*has 3 layers, allowed are 1 to 2"):
        runner_for(loaded).split_at(exit_layer)


def test_a_model_that_changes_its_inputs_is_refused(loaded: LoadedModel) -> None:
    """Starting from hidden states must not scale them: the probe finds it, whatever the model does."""
    decoder = loaded.model.base_model
    original = decoder.forward

    def scaled(*args: Any, inputs_embeds: torch.Tensor | None = None, **kwargs: Any) -> Any:
        return original(*args, inputs_embeds=None if inputs_embeds is None else inputs_embeds * 8.0, **kwargs)

    decoder.forward = scaled
    try:
        with pytest.raises(ConfigurationError, match="does it scale its embeddings"):
            runner_for(loaded).split_at(1)
    finally:
        decoder.forward = original


def test_layers_of_different_kinds_are_refused(loaded: LoadedModel) -> None:
    config = loaded.model.config
    config.layer_types = ["full_attention", "sliding_attention", "full_attention"]
    try:
        with pytest.raises(ConfigurationError, match="not all of one kind"):
            runner_for(loaded).split_at(1)
    finally:
        del config.layer_types
