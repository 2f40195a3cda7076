"""`outrider train draft`: distil a small draft model from the target."""

from functools import partial

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from workers.core.errors import ConfigurationError
from workers.models.draft_checkpoint import DraftCheckpoint, keep_layers
from workers.models.loader import model_source
from workers.training.answers import AnswerReader
from workers.training.batches import AnswerBatches, split
from workers.training.draft.config import DraftTrainingConfig
from workers.training.draft.student import DraftStudent, collate_answers
from workers.training.folders import replacing
from workers.training.run_folder import checkpoints_of, data_origins, last_metrics, write_origin
from workers.training.trainer import fit
from workers.training.vocabulary import frequent_tokens

__all__ = ["train_draft"]


def train_draft(config: DraftTrainingConfig) -> dict[str, float]:
    """Train, and write the checkpoint; returns the last validation metrics."""
    draft = _initial_draft(config)
    hidden_size, vocab_size = draft.config.hidden_size, draft.config.vocab_size
    reader = AnswerReader(config.data, hidden_size)
    tokens = frequent_tokens(reader.answers, config.vocabulary_size or vocab_size, vocab_size)
    student = DraftStudent(draft, tokens, config.state_weight)
    settings = config.optimizer
    training, validation = split(len(reader), settings.validation_answers, settings.seed)
    collate = partial(collate_answers, max_length=config.max_length)
    log = fit(
        student,
        AnswerBatches(reader, training, settings.batch_size, collate, settings.seed),
        AnswerBatches(reader, validation, settings.batch_size, collate, settings.seed),
        None,
        settings,
        checkpoints_of(config.output, config),
        batched=True,
    )
    checkpoint = DraftCheckpoint(config.target, config.layers, hidden_size, vocab_size)
    with replacing(config.output) as folder:
        checkpoint.write(folder, draft, tokens if config.vocabulary_size else None)
        write_origin(folder, config, data_origins(config.data), log, f"draft with layers {list(config.layers)}")
    return last_metrics(log)


def _initial_draft(config: DraftTrainingConfig) -> PreTrainedModel:
    source = model_source(config.target)
    draft: PreTrainedModel = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    if not hasattr(draft.base_model, "layers") or not hasattr(draft.base_model, "norm"):
        raise ConfigurationError(f"{config.target!r}: a draft can be made of models with `layers` and `norm` only")
    keep_layers(draft, config.layers)
    return draft
