"""`outrider train layerskip`: make a model's early layers good drafts of its last."""

from typing import Any

import torch
from transformers import PreTrainedModel, set_seed

from workers.core.errors import ConfigurationError
from workers.core.folders import replacing
from workers.models.export import save_model, stored_dtype
from workers.models.pretrained import read_model
from workers.text.tokenizer import Tokenizer
from workers.training.batches import split
from workers.training.follow_step import FollowStep
from workers.training.layerskip.config import LayerSkipTrainingConfig, LoraConfig
from workers.training.layerskip.student import LayerSkipStudent
from workers.training.layerskip.texts import Sequences, read_texts
from workers.training.run_folder import TrainingRun, last_metrics
from workers.training.trainer import fit

__all__ = ["train_layerskip"]


def train_layerskip(config: LayerSkipTrainingConfig) -> dict[str, float]:
    """Train, and write a plain transformers folder; returns the last validation metrics."""
    run = TrainingRun(config, config.model)
    model = read_model(config.model, torch.float32)
    training, validation = _data(config, model.config.get_text_config().vocab_size)
    set_seed(config.optimizer.seed)
    adapted = None if config.lora is None else _with_lora(model, config.lora)
    student = LayerSkipStudent(model, config.recipe)
    log = fit(
        student,
        training,
        validation,
        _collate,
        config.optimizer,
        run.open_checkpoints(),
        callbacks=[FollowStep(student)],
    )
    trained = model if adapted is None else adapted.merge_and_unload()
    with replacing(config.output) as folder:
        save_model(trained.to(device="cpu", dtype=stored_dtype(config.model)), config.model, folder)
        run.write(folder, log, f"early exits of {config.model}")
    return last_metrics(log)


def _data(config: LayerSkipTrainingConfig, vocab_size: int) -> tuple[Sequences, Sequences]:
    """Training and validation share no text."""
    texts = read_texts(config.data, Tokenizer.load(config.model), vocab_size)
    settings = config.optimizer
    parts = [
        Sequences([texts[index] for index in indices], config.sequence_length)
        for indices in split(len(texts), settings.validation_answers, settings.seed)
    ]
    if not all(map(len, parts)):
        raise ConfigurationError(
            f"data {', '.join(map(str, config.data))!r} has too little text for sequences of {config.sequence_length} "
            "tokens (in training and in validation); lower sequence_length or raise optimizer.validation_answers"
        )
    return parts[0], parts[1]


def _collate(rows: list[torch.Tensor]) -> dict[str, Any]:
    return {"input_ids": torch.stack(rows)}


def _with_lora(model: PreTrainedModel, config: LoraConfig) -> Any:
    """Put adapters into `model` in place; the returned wrapper can merge them."""
    import peft

    settings = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, settings)
