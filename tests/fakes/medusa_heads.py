"""Medusa heads for the tiny model: some that know its answers by heart, and some that know nothing."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tests.fakes.engines import make_engine, make_request, run_all
from workers.core.sampling_params import SamplingParams
from workers.medusa.checkpoint import HeadsCheckpoint, probe_tokens, write_heads
from workers.medusa.config import HeadsConfig, Origin
from workers.medusa.heads import MedusaHeads
from workers.medusa.tree import choose_tree, usual_accuracies
from workers.models.loaded import LoadedModel
from workers.models.packed import head_rows
from workers.proposers.medusa import MedusaProposer
from workers.training.recorder import HiddenStateRecorder

FIT_STEPS = {False: 40, True: 200}  # blocks alone need longer than blocks with LM heads of their own

__all__ = ["heads_config", "knowing_heads", "proposer_of", "random_heads", "save"]


def heads_config(
    loaded: LoadedModel, *, shared: bool = False, reduced: int | None = None, layers: int = 1
) -> HeadsConfig:
    return HeadsConfig(
        num_heads=3,
        num_hidden_layers=layers,
        hidden_size=loaded.hidden_size,
        vocab_size=loaded.vocab_size,
        truncated_vocab_size=reduced,
        original_lm_head=shared,
        outrider=Origin(target=loaded.name, tree_choices=choose_tree(usual_accuracies(3), 24)),
    )


def random_heads(config: HeadsConfig, loaded: LoadedModel, seed: int = 0) -> MedusaHeads:
    """Heads that say anything; a shared LM head is the target's own."""
    generator = torch.Generator().manual_seed(seed)
    reduced = config.truncated_vocab_size
    tokens = None if reduced is None else torch.arange(3, 3 + reduced)
    heads = MedusaHeads.untrained(config, head_rows(loaded.lm_head, tokens), tokens)
    for name, weight in heads.named_parameters():
        if not name.startswith("lm_head."):
            weight.data = torch.randn(weight.shape, generator=generator) * weight.shape[-1] ** -0.5
    return heads


def knowing_heads(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    config: HeadsConfig | None = None,
) -> MedusaHeads:
    """Heads fitted to the model's answers to `prompts` (seeds 1, 2, …); an LM head that they share stays the target's.

    A reduced vocabulary holds the tokens of the answers, and the first others.
    """
    config = config or heads_config(loaded)
    recorder = HiddenStateRecorder()
    engine = make_engine(loaded, recorder)
    results = run_all(engine, [make_request(p, sampling, seed=i + 1) for i, p in enumerate(prompts)])
    rows = [torch.from_numpy(recorder.take(key)).float() for key in range(1, len(prompts) + 1)]
    engine.stop()
    answers = [torch.tensor(result.token_ids) for result in results]
    vocabulary = _vocabulary(torch.cat(answers), config.truncated_vocab_size)
    heads = MedusaHeads.untrained(config, head_rows(loaded.lm_head, vocabulary), vocabulary)
    if vocabulary is not None:
        answers = [torch.searchsorted(vocabulary, answer) for answer in answers]
    if config.original_lm_head:
        heads.lm_head.requires_grad_(False)
    learning = [parameter for parameter in heads.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.02)
    for _ in range(FIT_STEPS[config.original_lm_head]):
        loss = torch.zeros(())
        for number in range(heads.config.num_heads):
            states = torch.cat([r[: len(a) - number - 1] for r, a in zip(rows, answers, strict=True)])
            tokens = torch.cat([a[number + 1 :][: len(r)] for r, a in zip(rows, answers, strict=True)])
            loss = loss + torch.nn.functional.cross_entropy(heads.logits(number, states), tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return heads


def _vocabulary(used: torch.Tensor, size: int | None) -> torch.Tensor | None:
    if size is None:
        return None
    needed = set(used.tolist())
    others = [token for token in range(3, 3 + size + len(needed)) if token not in needed]
    return torch.tensor(sorted([*needed, *others[: size - len(needed)]]))


def save(folder: Path, heads: MedusaHeads, loaded: LoadedModel) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = heads.config.vocab_size or loaded.vocab_size
    write_heads(folder, heads, heads.config, head_rows(loaded.lm_head, probe_tokens(size)))
    return folder


def proposer_of(folder: Path, heads: MedusaHeads, loaded: LoadedModel) -> MedusaProposer:
    """Through a folder, as it is served."""
    save(folder, heads, loaded)
    assert HeadsCheckpoint.read(str(folder)).config.num_heads == heads.config.num_heads
    return MedusaProposer.load(str(folder), loaded)
