"""Our execution against transformers' own: same weights, same tokens, same logits."""

import dataclasses
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.fakes.engines import tiny_loaded
from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel
from workers.runner.model_runner import ModelRunner

TOKENS = [int(t) for t in torch.randint(3, 512, (40,), generator=torch.Generator().manual_seed(1))]


@pytest.fixture(scope="module")
def reference(tiny_target: Path) -> torch.Tensor:
    """Logits [40, vocab] of transformers' own forward pass."""
    return logits_of(AutoModelForCausalLM.from_pretrained(tiny_target, dtype=torch.float32))


def logits_of(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return torch.as_tensor(model.eval()(torch.tensor([TOKENS])).logits[0])


def runner_for(loaded: LoadedModel, num_slots: int = 256) -> ModelRunner:
    storage = KvStorage(
        num_layers=loaded.num_layers,
        num_slots=num_slots,
        num_kv_heads=loaded.num_kv_heads,
        head_dim=loaded.head_dim,
        dtype=loaded.kv_dtype,
    )
    return ModelRunner(loaded, storage)


def chunk(slots: np.ndarray, start: int, end: int) -> SequenceChunk:
    """Tokens start..end of TOKENS, all logits wanted."""
    return SequenceChunk(
        token_ids=TOKENS[start:end],
        positions=range(start, end),
        slots=slots[start:end],
        context_slots=slots[:start],
        window_slots=slots[start:end],
        mask=causal_mask(end - start),
        logits_for=range(end - start),
    )


def scattered(seed: int, count: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).permutation(120)[:count].astype(np.int64) + 120 * seed


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_chunks_over_scattered_slots_give_the_models_logits(
    tiny_target: Path, reference: torch.Tensor, dtype: str
) -> None:
    """float16 means fp16 weights under fp32 arithmetic: the reference has its weights rounded, nothing else."""
    if dtype == "float16":
        model = AutoModelForCausalLM.from_pretrained(tiny_target, dtype=torch.float32)
        for weight in model.parameters():
            weight.data = weight.data.half().float()
        reference = logits_of(model)
    runner = runner_for(tiny_loaded(tiny_target, dtype))
    slots = scattered(0)
    rows = [runner.forward([chunk(slots, a, b)])[0].logits for a, b in ((0, 17), (17, 18), (18, 19), (19, 40))]
    assert torch.allclose(torch.cat(rows), reference, atol=5e-5)


def test_ragged_batches_do_not_mix(tiny_target: Path, reference: torch.Tensor) -> None:
    runner = runner_for(tiny_loaded(tiny_target))
    one, two = scattered(0), scattered(1)
    runner.forward([chunk(one, 0, 30)])
    first, second = (o.logits for o in runner.forward([chunk(one, 30, 33), chunk(two, 0, 9)]))
    assert torch.allclose(first, reference[30:33], atol=2e-5)
    assert torch.allclose(second, reference[:9], atol=2e-5)


def test_a_tree_node_sees_its_ancestors_only(tiny_target: Path, reference: torch.Tensor) -> None:
    """Root and two branches: the true continuation and a foreign one, interleaved."""
    runner = runner_for(tiny_loaded(tiny_target))
    slots = scattered(0)
    runner.forward([chunk(slots, 0, 20)])
    #            root        node 0  node 1      node 2  node 3
    tokens = [TOKENS[20], 99, TOKENS[21], 98, TOKENS[22]]
    visible = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    mask = torch.zeros(5, 5, dtype=torch.bool)
    for row, columns in enumerate(visible):
        mask[row, columns] = True
    window = slots[20:25]
    tree = SequenceChunk(tokens, [20, 21, 21, 22, 22], window, slots[:20], window, mask, range(5))
    rows = runner.forward([tree])[0].logits
    assert torch.allclose(rows[[0, 2, 4]], reference[20:23], atol=2e-5)
    assert not torch.allclose(rows[3], reference[22], atol=1e-2)


def test_moved_kv_is_the_same_kv(tiny_target: Path, reference: torch.Tensor) -> None:
    runner = runner_for(tiny_loaded(tiny_target))
    old, new = scattered(0), scattered(1)
    runner.forward([chunk(old, 0, 30)])
    runner.storage.move(torch.from_numpy(old[:30]), torch.from_numpy(new[:30]))
    rows = runner.forward([chunk(new, 30, 40)])[0].logits
    assert torch.allclose(rows, reference[30:], atol=2e-5)


def test_no_logits_wanted_still_stores_kv(tiny_target: Path, reference: torch.Tensor) -> None:
    runner = runner_for(tiny_loaded(tiny_target))
    slots = scattered(0)
    silent = dataclasses.replace(chunk(slots, 0, 30), logits_for=())
    assert runner.forward([silent])[0].logits.shape == (0, 512)
    rows = runner.forward([chunk(slots, 30, 40)])[0].logits
    assert torch.allclose(rows, reference[30:], atol=2e-5)


def test_hidden_states_are_what_the_head_saw(tiny_target: Path) -> None:
    loaded = tiny_loaded(tiny_target)
    output = runner_for(loaded).forward([chunk(scattered(0), 0, 12)])[0]
    assert output.hidden.shape == (12, loaded.hidden_size)
    assert torch.allclose(loaded.lm_head(output.hidden[None])[0][:, : loaded.vocab_size], output.logits, atol=1e-5)


def test_a_runner_that_is_gone_leaves_nothing_at_the_model(tiny_target: Path) -> None:
    loaded = tiny_loaded(tiny_target)
    runner = runner_for(loaded)
    runner.forward([chunk(scattered(0), 0, 3)])
    storage = weakref.ref(runner.storage)
    del runner
    gc.collect()
    assert storage() is None
