"""`outrider train medusa`: heads for a target that stays as it is."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from workers.core.config import ModelConfig
from workers.core.folders import replacing
from workers.medusa.checkpoint import probe_tokens, write_heads
from workers.medusa.config import HeadsConfig, Origin
from workers.medusa.heads import MedusaHeads
from workers.medusa.tree import choose_tree
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.models.packed import head_rows
from workers.training.answers import AnswerReader
from workers.training.batches import answer_batches
from workers.training.medusa.config import HeadsSettings, MedusaTrainingConfig
from workers.training.medusa.student import RANKS, HeadsLoss, MedusaStudent, collate_rows
from workers.training.run_folder import TrainingRun, last_metrics
from workers.training.target_identity import identify, open_answers
from workers.training.trainer import fit
from workers.training.vocabulary import frequent_tokens

__all__ = ["MIN_ROWS", "initial_heads", "rank_accuracies", "train_medusa", "write_trained"]

MIN_ROWS = 2  # of an answer: the first head learns from a row what the next one says


def train_medusa(config: MedusaTrainingConfig) -> dict[str, float]:
    """Train, and write the heads; returns the last validation metrics."""
    run = TrainingRun(config, config.target)
    loaded = load_model(ModelConfig(model=config.target))
    reader = open_answers(config.data, identify(config.target, loaded.model.config, loaded.tokenizer))
    settings = config.optimizer
    training, validation = answer_batches(reader, settings, collate_rows, min_rows=MIN_ROWS)
    student = MedusaStudent(*initial_heads(config.heads, reader, loaded))
    log = fit(student, training, validation, None, settings, run.open_checkpoints(), batched=True)
    found = rank_accuracies(student, (validation[index] for index in range(len(validation))))
    with replacing(config.output) as folder:
        write_trained(folder, student.heads, found, config.heads, loaded)
        run.write(folder, log, f"Medusa heads for {loaded.name}", head_accuracies=found)
    return last_metrics(log)


def initial_heads(settings: HeadsSettings, reader: AnswerReader, loaded: LoadedModel) -> tuple[MedusaHeads, HeadsLoss]:
    """Heads that say what the target says, and what they are to be compared with."""
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
