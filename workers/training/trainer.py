"""The training loop of every method: transformers' Trainer around a module that returns its own loss.

A module's `forward(**batch)` returns a dict with a scalar `loss` and any number of other scalars, which are averaged
over the validation answers and logged. Only parameters that require gradients are saved.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments, set_seed

from workers.core.allocator import keep_freed_memory
from workers.models.tensor_file import save_tensors
from workers.training.optimizer_config import OptimizerConfig

__all__ = ["fit", "last_checkpoint"]

Batch = dict[str, Any]
Collate = Callable[[list[Any]], Batch]
WEIGHTS = "model.safetensors"  # the name that Trainer looks for
STATE = "trainer_state.json"  # Trainer writes it last: a checkpoint that has it is whole
LOG_EVERY = 10


def fit(
    module: nn.Module,
    training: Dataset[Any],
    validation: Dataset[Any],
    collate: Collate | None,
    config: OptimizerConfig,
    checkpoints: Path,
    parameter_groups: Sequence[dict[str, Any]] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    batched: bool = False,
) -> list[dict[str, Any]]:
    """Train in place, from the last whole checkpoint if there is one; returns the log of losses and metrics.

    `parameter_groups` (torch's format) replaces the one group of all trainable parameters. `batched`: the items of the
    datasets are whole batches already, and `collate` is not asked.
    """
    keep_freed_memory()
    set_seed(config.seed)
    trainer = _Trainer(
        model=module,
        args=_arguments(config, checkpoints, 1 if batched else config.batch_size),
        train_dataset=training,
        eval_dataset=validation,
        data_collator=_only if batched else collate,
        callbacks=list(callbacks),
        optimizers=(_optimizer(module, config, parameter_groups), None),
    )
    resume = last_checkpoint(checkpoints)
    if resume is not None and _has_ended(resume):
        trainer.take_over(resume)
    else:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    trainer.evaluate()
    return list(trainer.state.log_history)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; those that were cut off while being written are deleted."""
    whole: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        if _is_whole(path):
            whole.append((int(path.name.rsplit("-", 1)[1]), path))
        else:
            shutil.rmtree(path)
    return max(whole)[1] if whole else None


def _is_whole(path: Path) -> bool:
    try:
        json.loads((path / STATE).read_text())
    except (OSError, ValueError):
        return False
    return True


def _has_ended(checkpoint: Path) -> bool:
    state = TrainerState.load_from_json(str(checkpoint / STATE))
    return bool(state.global_step >= state.max_steps > 0)


class _Trainer(Trainer):  # type: ignore[misc]
    def compute_loss(self, model: nn.Module, inputs: Batch, *_: Any, **__: Any) -> torch.Tensor:
        loss: torch.Tensor = model(**inputs)["loss"]
        return loss

    def take_over(self, checkpoint: Path) -> None:
        """Weights and log of a run that has ended; `train` would go one step beyond its end."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / STATE))

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Means over the validation batches, by number of answers."""
        self.model.eval()
        sums: dict[str, float] = {}
        total = 0
        for batch in self.get_eval_dataloader():
            batch = self._prepare_inputs(batch)
            size = len(next(iter(batch.values())))
            with torch.no_grad(), self.compute_loss_context_manager():
                for name, value in self.model(**batch).items():
                    sums[name] = sums.get(name, 0.0) + float(value) * size
            total += size
        self.model.train()
        means = {f"eval_{name}": value / total for name, value in sums.items()}
        self.log(means)
        return means

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        trained = {n: p.detach().contiguous() for n, p in self.model.named_parameters() if p.requires_grad}
        save_tensors(trained, folder / WEIGHTS)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Raises `OSError` where torch has its own error for a disk that is full."""
        try:
            super()._save_optimizer_and_scheduler(output_dir)
        except RuntimeError as error:
            raise OSError(f"{output_dir} cannot be written: {error}") from None

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        (model or self.model).load_state_dict(load_file(Path(resume_from_checkpoint) / WEIGHTS), strict=False)


def _only(items: list[Batch]) -> Batch:
    (item,) = items
    return item


def _arguments(config: OptimizerConfig, checkpoints: Path, batch_size: int) -> TrainingArguments:
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=batch_size,
        lr_scheduler_type="cosine",
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        max_grad_norm=config.max_grad_norm,
        bf16=config.dtype == "bfloat16",
        use_cpu=config.device == "cpu",
        seed=config.seed,
        data_seed=config.seed,
        logging_steps=LOG_EVERY,
        eval_strategy="steps",
        eval_steps=config.evaluate_every,
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=2,
        remove_unused_columns=False,
        label_names=[],
        report_to=[],
    )
    if arguments.n_gpu > 1:  # DataParallel would split tensors whose indices are those of the whole batch
        arguments._n_gpu = 1
    return arguments


def _optimizer(
    module: nn.Module, config: OptimizerConfig, groups: Sequence[dict[str, Any]] | None
) -> torch.optim.Optimizer:
    parameters = groups or [{"params": [p for p in module.parameters() if p.requires_grad]}]
    return torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
