"""`outrider train medusa`: heads for a target that stays as it is."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.medusa.checkpoint import probe_tokens, write_heads
from workers.medusa.config import HeadsConfig, Origin
from workers.medusa.heads import MedusaHeads
from workers.medusa.tree import choose_tree
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.models.packed import head_rows
from workers.training.answers import AnswerReader
from workers.training.batches import AnswerBatches, split
from workers.training.folders import replacing
from workers.training.medusa.config import HeadsSettings, MedusaTrainingConfig
from workers.training.medusa.student import RANKS, HeadsLoss, MedusaStudent, collate_rows
from workers.training.run_folder import checkpoints_of, data_origins, last_metrics, write_origin
from workers.training.trainer import fit
from workers.training.vocabulary import frequent_tokens

__all__ = ["initial_heads", "rank_accuracies", "train_medusa", "write_trained"]


def train_medusa(config: MedusaTrainingConfig) -> dict[str, float]:
    """Train, and write the heads; returns the last validation metrics."""
    loaded = load_model(ModelConfig(model=config.target))
    reader = AnswerReader(config.data, loaded.hidden_size)
    student = MedusaStudent(*initial_heads(config.heads, reader, loaded))
    settings = config.optimizer
    training, validation = (
        AnswerBatches(reader, part, settings.batch_size, collate_rows, settings.seed)
        for part in split(len(reader), settings.validation_answers, settings.seed)
    )
    data = data_origins(config.data)
    checkpoints = checkpoints_of(config.output, config)
    log = fit(student, training, validation, None, settings, checkpoints, batched=True)
    found = rank_accuracies(student, (validation[index] for index in range(len(validation))))
    with replacing(config.output) as folder:
        write_trained(folder, student.heads, found, config.heads, loaded)
        write_origin(folder, config, data, log, f"Medusa heads for {loaded.name}", head_accuracies=found)
    return last_metrics(log)


def initial_heads(settings: HeadsSettings, reader: AnswerReader, loaded: LoadedModel) -> tuple[MedusaHeads, HeadsLoss]:
    """Heads that say what the target says, and what they are to be compared with."""
    if not any(answer.hidden_rows > 1 for answer in reader.answers):
        raise ConfigurationError("the data folder has no answer of two tokens or more: there is nothing to learn from")
    padded = loaded.model.config.get_text_config().vocab_size
    size = settings.vocabulary_size
    reduced = size is not None and size < loaded.vocab_size
    if size is not None and reduced:
        tokens = frequent_tokens(reader.answers, size, loaded.vocab_size, loaded.eos_token_ids)
    else:
        tokens = torch.arange(padded)
    config = HeadsConfig(
        num_heads=settings.num_heads,
        num_hidden_layers=settings.num_layers,
        hidden_size=loaded.hidden_size,
        vocab_size=padded,
        truncated_vocab_size=size if reduced else None,
        original_lm_head=settings.shared_head,
    )
    rows = head_rows(loaded.lm_head, tokens)
    heads = MedusaHeads.untrained(config, rows, tokens if reduced else None)
    return heads, HeadsLoss(settings, rows, tokens, padded)


class Ranking(Protocol):
    """A student whose heads can be asked which rank they gave to the right tokens."""

    heads: MedusaHeads

    def ranks(self, batch: dict[str, Any]) -> torch.Tensor: ...

    def eval(self) -> Any: ...


@torch.no_grad()
def rank_accuracies(student: Ranking, batches: Iterable[dict[str, Any]]) -> list[list[float]]:
    """For each head and rank: how often the token of that rank was the right one."""
    student.eval()
    counts = torch.zeros(student.heads.config.num_heads, RANKS + 1)
    for batch in batches:
        for head, row in enumerate(student.ranks(batch).cpu()):
            counts[head] += torch.bincount(row[row >= 0], minlength=RANKS + 1)
    totals = counts.sum(1, keepdim=True).clamp(min=1)
    return [[round(value, 5) for value in row] for row in (counts / totals)[:, :RANKS].tolist()]


def write_trained(
    folder: Path,
    heads: MedusaHeads,
    found: Sequence[Sequence[float]],
    settings: HeadsSettings,
    loaded: LoadedModel,
) -> None:
    """Weights, sizes, accuracies and the tree that follows from them."""
    origin = Origin(
        target=loaded.name,
        target_fingerprint=loaded.fingerprint,
        head_accuracies=tuple(tuple(row) for row in found),
        tree_choices=choose_tree(found, settings.tree_nodes),
    )
    config = heads.config.model_copy(update={"outrider": origin})
    probes = probe_tokens(config.vocab_size or loaded.vocab_size)
    write_heads(folder, heads, config, head_rows(loaded.lm_head, probes))
