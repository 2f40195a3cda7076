"""`outrider train draft`: distil a small draft model from the target."""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.core.provenance import provenance
from workers.models.draft_checkpoint import DraftCheckpoint, keep_layers
from workers.models.loader import model_source
from workers.training.answers import Answer, AnswerReader
from workers.training.batches import AnswerBatches, split
from workers.training.draft.config import DraftTrainingConfig
from workers.training.draft.student import DraftStudent, collate_answers
from workers.training.folders import replacing
from workers.training.plots import plot_log
from workers.training.trainer import fit

__all__ = ["frequent_tokens", "train_draft"]


def train_draft(config: DraftTrainingConfig) -> dict[str, float]:
    """Train, and write the checkpoint; returns the last validation metrics."""
    draft = _initial_draft(config)
    hidden_size, vocab_size = draft.config.hidden_size, draft.config.vocab_size
    reader = AnswerReader(config.data, hidden_size)
    tokens = frequent_tokens(reader.answers, config.vocabulary_size or vocab_size, vocab_size)
    student = DraftStudent(draft, tokens)
    settings = config.optimizer
    training, validation = split(len(reader), settings.validation_answers, settings.seed)
    collate = partial(collate_answers, max_length=config.max_length)
    log = fit(
        student,
        AnswerBatches(reader, training, settings.batch_size, collate, settings.seed),
        AnswerBatches(reader, validation, settings.batch_size, collate, settings.seed),
        None,
        settings,
        config.output.with_name(config.output.name + ".checkpoints"),
        batched=True,
    )
    checkpoint = DraftCheckpoint(config.target, config.layers, hidden_size, vocab_size)
    metrics = _last_metrics(log)
    with replacing(config.output) as folder:
        checkpoint.write(folder, draft, tokens if config.vocabulary_size else None)
        origin = provenance(config=config.model_dump(mode="json"), data=_data_origin(config.data), metrics=metrics)
        (folder / "provenance.json").write_text(json.dumps(origin, indent=2) + "\n")
        plot_log(log, folder / "training.png", f"draft with layers {list(config.layers)}")
    return metrics


def frequent_tokens(answers: list[Answer], size: int, vocab_size: int) -> torch.Tensor:
    """The most frequent answer tokens, ascending, int64; filled up with the lowest ids when answers have fewer."""
    if size >= vocab_size:
        return torch.arange(vocab_size)
    counts = Counter(token for answer in answers for token in answer.answer_token_ids)
    chosen = [token for token, _ in counts.most_common(size)]
    others = (token for token in range(vocab_size) if token not in counts)
    while len(chosen) < size:
        chosen.append(next(others))
    return torch.tensor(sorted(chosen))


def _initial_draft(config: DraftTrainingConfig) -> PreTrainedModel:
    source = model_source(ModelConfig(model=config.target).model)
    draft: PreTrainedModel = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    if not hasattr(draft.base_model, "layers") or not hasattr(draft.base_model, "norm"):
        raise ConfigurationError(f"{config.target!r}: a draft can be made of models with `layers` and `norm` only")
    keep_layers(draft, config.layers)
    return draft


def _last_metrics(log: list[dict[str, Any]]) -> dict[str, float]:
    last = next(entry for entry in reversed(log) if "eval_loss" in entry)
    return {name.removeprefix("eval_"): value for name, value in last.items() if name.startswith("eval_")}


def _data_origin(folder: Path) -> dict[str, Any]:
    """Hash of the answers, and how they were made."""
    import xxhash

    digest = xxhash.xxh3_128((folder / "answers.jsonl").read_bytes()).hexdigest()
    made = folder / "provenance.json"
    return {"xxh3_128": digest, "provenance": json.loads(made.read_text()) if made.is_file() else None}
