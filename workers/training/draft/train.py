"""`outrider train draft`: distil a small draft model from the target."""

from functools import partial

import torch
from transformers import PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.core.folders import replacing
from workers.models.draft_checkpoint import DraftCheckpoint, keep_layers
from workers.models.pretrained import read_model
from workers.training.batches import answer_batches
from workers.training.draft.config import DraftTrainingConfig
from workers.training.draft.student import DraftStudent, collate_answers
from workers.training.run_folder import TrainingRun, last_metrics
from workers.training.target_identity import TargetIdentity, identify, open_answers
from workers.training.trainer import fit
from workers.training.vocabulary import frequent_tokens

__all__ = ["train_draft"]


def train_draft(config: DraftTrainingConfig) -> dict[str, float]:
    """Train, and write the checkpoint; returns the last validation metrics."""
    run = TrainingRun(config, config.target)
    draft, target = _initial_draft(config)
    hidden_size, vocab_size = draft.config.hidden_size, draft.config.vocab_size
    reader = open_answers(config.data, target)
    tokens = frequent_tokens(reader.answers, config.vocabulary_size or vocab_size, vocab_size)
    student = DraftStudent(draft, tokens, config.state_weight)
    settings = config.optimizer
    collate = partial(collate_answers, max_length=config.max_length)
    training, validation = answer_batches(reader, settings, collate, max_length=config.max_length)
    log = fit(student, training, validation, None, settings, run.open_checkpoints(), batched=True)
    checkpoint = DraftCheckpoint(config.target, config.layers, hidden_size, vocab_size)
    with replacing(config.output) as folder:
        checkpoint.write(folder, draft, tokens if config.vocabulary_size else None)
        run.write(folder, log, f"draft with layers {list(config.layers)}")
    return last_metrics(log)


def _initial_draft(config: DraftTrainingConfig) -> tuple[PreTrainedModel, TargetIdentity]:
    draft = read_model(config.target, torch.float32)
    if not hasattr(draft.base_model, "layers") or not hasattr(draft.base_model, "norm"):
        raise ConfigurationError(f"{config.target!r}: a draft can be made of models with `layers` and `norm` only")
    target = identify(config.target, draft.config)
    keep_layers(draft, config.layers)
    return draft, target
