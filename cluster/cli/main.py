"""`outrider serve | generate | status | keys | model fetch`."""

import typer

from cluster.cli.autoscale import app as autoscale_app
from cluster.cli.convert import app as convert_app
from cluster.cli.generate import generate
from cluster.cli.keys import app as keys_app
from cluster.cli.model import app as model_app
from cluster.cli.probe import probe
from cluster.cli.serve import serve
from cluster.cli.status import status
from cluster.cli.train import app as train_app

__all__ = ["app", "main"]

app = typer.Typer(
    name="outrider",
    help="Serve large language models on Ray with exact, disaggregated speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve)
app.command("generate")(generate)
app.command("status")(status)
app.command("probe")(probe)
app.add_typer(autoscale_app, name="autoscale")
app.add_typer(convert_app, name="convert")
app.add_typer(keys_app, name="keys")
app.add_typer(model_app, name="model")
app.add_typer(train_app, name="train")


def main() -> None:
    """Entry point of the console script."""
    app()
