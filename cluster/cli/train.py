"""`outrider train METHOD CONFIG`: data, drafts, heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cluster.cli.output import err_console, friendly_errors, out_console
from cluster.config.yaml_file import read_settings

__all__ = ["app"]

app = typer.Typer(help="Train what speculates, and write the data for it.", no_args_is_help=True)

Config = Annotated[Path, typer.Argument(help="YAML file of settings")]


@app.callback()
def _group() -> None:
    """Train what speculates, and write the data for it."""


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=err_console()) as progress:
        yield progress


@app.command("data")
def data(config: Config) -> None:
    """Let the target answer prompts; writes answers with the hidden states behind them."""
    from workers.training.data import generate_data
    from workers.training.data_config import DataConfig

    with friendly_errors():
        settings = read_settings(config, DataConfig)
        with _bar("answers") as bar:
            task = bar.add_task("data", total=settings.num_prompts, note="")
            generate_data(
                settings,
                lambda done, wanted, tokens: bar.update(task, completed=done, total=wanted, note=f"{tokens} tokens"),
            )
        out_console().print(str(settings.output), markup=False, soft_wrap=True)


@app.command("draft")
def draft(config: Config) -> None:
    """Distil a small draft model from the target's answers."""
    from workers.training.draft.config import DraftTrainingConfig
    from workers.training.draft.train import train_draft

    with friendly_errors():
        settings = read_settings(config, DraftTrainingConfig)
        report(settings.output, train_draft(settings))


@app.command("medusa")
def medusa(config: Config) -> None:
    """Train Medusa heads for a target that stays as it is."""
    from workers.training.medusa.config import MedusaTrainingConfig
    from workers.training.medusa.train import train_medusa

    with friendly_errors():
        settings = read_settings(config, MedusaTrainingConfig)
        report(settings.output, train_medusa(settings))


@app.command("medusa2")
def medusa2(config: Config) -> None:
    """Train Medusa heads and their target together."""
    from workers.training.medusa.config import Medusa2TrainingConfig
    from workers.training.medusa.train_joint import train_medusa2

    with friendly_errors():
        settings = read_settings(config, Medusa2TrainingConfig)
        report(settings.output, train_medusa2(settings))


@app.command("layerskip")
def layerskip(config: Config) -> None:
    """Train a model so that its first layers can draft for it."""
    from workers.training.layerskip.config import LayerSkipTrainingConfig
    from workers.training.layerskip.train import train_layerskip

    with friendly_errors():
        settings = read_settings(config, LayerSkipTrainingConfig)
        report(settings.output, train_layerskip(settings))


@app.command("small-model")
def small_model(folder: Annotated[Path, typer.Argument(help="Folder that receives the model")]) -> None:
    """Write a small untrained model with a corpus, to try `outrider train layerskip` with."""
    from workers.training.small_model import write_small_model

    with friendly_errors():
        out_console().print(str(write_small_model(folder)), markup=False, soft_wrap=True)


def report(output: Path, metrics: dict[str, float]) -> None:
    """The last validation metrics, and where the result lies."""
    console = err_console()
    for name, value in sorted(metrics.items()):
        console.print(f"validation {name}: {value:.4f}", markup=False)
    out_console().print(str(output), markup=False, soft_wrap=True)
