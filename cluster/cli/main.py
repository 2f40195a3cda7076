"""`outrider serve | generate | status | model fetch`."""

import typer

from cluster.cli import generate, model, serve, status

__all__ = ["app", "main"]

app = typer.Typer(
    name="outrider",
    help="Serve large language models on Ray with exact, disaggregated speculative decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("generate")(generate.generate)
app.command("status")(status.status)
app.add_typer(model.app, name="model")


def main() -> None:
    """Entry point of the console script."""
    app()
