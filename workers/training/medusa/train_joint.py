"""`outrider train medusa2`: heads and target together."""

import dataclasses
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from workers.core.config import ModelConfig
from workers.core.folders import replacing
from workers.models.export import save_model, stored_dtype
from workers.models.loader import load_model
from workers.models.pretrained import read_model
from workers.training.batches import answer_batches
from workers.training.follow_step import FollowStep
from workers.training.medusa.config import Medusa2TrainingConfig
from workers.training.medusa.joint import JointStudent, collate_joint
from workers.training.medusa.train import MIN_ROWS, initial_heads, rank_accuracies, write_trained
from workers.training.run_folder import TrainingRun, last_metrics
from workers.training.target_identity import identify, open_answers
from workers.training.trainer import fit

__all__ = ["perplexity", "train_medusa2"]


def train_medusa2(config: Medusa2TrainingConfig) -> dict[str, float]:
    """Train, and write the target and its heads; the metrics tell the target's perplexity before and after."""
    run = TrainingRun(config, config.target)
    loaded = load_model(ModelConfig(model=config.target))
    reader = open_answers(config.data, identify(config.target, loaded.model.config, loaded.tokenizer))
    settings = config.optimizer
    collate = partial(collate_joint, max_length=config.max_length)
    training, validation = answer_batches(reader, settings, collate, MIN_ROWS, config.max_length)
    student = JointStudent(_backbone(config), *initial_heads(config.heads, reader, loaded), config)
    checkpoints = run.open_checkpoints()
    held_out = [validation[index] for index in range(len(validation))]
    student.to(settings.device)
    before = perplexity(student, held_out)
    log = fit(
        student,
        training,
        validation,
        None,
        settings,
        checkpoints,
        parameter_groups=student.parameter_groups(settings.learning_rate, config.backbone_learning_rate),
        callbacks=[FollowStep(student)],
        batched=True,
    )
    found = rank_accuracies(student, held_out)
    quality = {"perplexity_before": before, "perplexity_after": perplexity(student, held_out)}
    with replacing(config.output) as folder:
        _write(folder, student, found, config)
        run.write(folder, log, f"Medusa-2 of {config.target}", head_accuracies=found, **quality)
    return {**last_metrics(log), **quality}


def _backbone(config: Medusa2TrainingConfig) -> PreTrainedModel:
    """The target in fp32 with what is to be trained; embeddings and LM head never are."""
    model = read_model(config.target, torch.float32)
    if config.lora_rank is None:
        model.get_input_embeddings().requires_grad_(False)
        model.get_output_embeddings().requires_grad_(False)
        return model
    torch.manual_seed(config.optimizer.seed)
    lora = LoraConfig(r=config.lora_rank, lora_alpha=2 * config.lora_rank, target_modules="all-linear")
    return get_peft_model(model, lora)


@torch.no_grad()
def perplexity(student: JointStudent, batches: Iterable[dict[str, Any]]) -> float:
    """Of the target on held-out answers."""
    student.eval()
    losses = [student.token_losses(batch) for batch in batches]
    return math.exp(float(torch.cat(losses).double().mean()))


def _write(folder: Path, student: JointStudent, found: list[list[float]], config: Medusa2TrainingConfig) -> None:
    backbone: Any = student.backbone
    model = backbone.merge_and_unload() if isinstance(backbone, PeftModel) else backbone
    save_model(model.to(device="cpu", dtype=stored_dtype(config.target)), config.target, folder / "model")
    trained = load_model(ModelConfig(model=str(folder / "model")))
    (folder / "heads").mkdir()
    heads = student.heads.cpu()
    write_trained(
        folder / "heads",
        heads,
        found,
        config.heads,
        dataclasses.replace(trained, name=str(config.output / "model")),
    )
