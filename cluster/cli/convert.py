"""`outrider convert speculative-config`: between vLLM's JSON and our YAML."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from cluster.cli.output import err_console, friendly_errors
from cluster.config.explain import explain
from cluster.config.vllm_speculative import Conversion, from_vllm, to_vllm
from workers.core.config import DrafterConfig, VerifierConfig
from workers.core.errors import ConfigurationError

__all__ = ["app"]

app = typer.Typer(help="Carry settings over from and to other engines.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Carry settings over from and to other engines."""


@app.command("speculative-config")
def speculative_config(
    source: Annotated[str, typer.Argument(help="A file, or the JSON itself")],
    reverse: Annotated[bool, typer.Option("--reverse", help="From our YAML to vLLM's JSON")] = False,
) -> None:
    """Turn vLLM's --speculative-config into `target` and `draft` of our application, or back; says what gets lost."""
    with friendly_errors():
        document = _read(source)
        conversion = _to_vllm(document) if reverse else from_vllm(document)
        settings = conversion.settings
        typer.echo(json.dumps(settings) if reverse else yaml.safe_dump(settings, sort_keys=False).rstrip())
        for line in conversion.lost:
            err_console().print(f"[yellow]no counterpart:[/] {line}", soft_wrap=True, markup=True)


def _read(source: str) -> dict[str, Any]:
    """JSON is YAML, so one parser reads both."""
    is_text = source.lstrip().startswith("{")
    try:
        document = yaml.safe_load(source if is_text else Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{'the JSON' if is_text else source} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{source}: an object with settings is expected")
    return document


def _to_vllm(document: dict[str, Any]) -> Conversion:
    """Takes a whole Serve file, the `args` of an application, or its `target` and `draft` alone."""
    for application in document.get("applications", []):
        document = application.get("args", application)
    target, draft = document.get("target"), document.get("draft")
    if not isinstance(target, dict):
        raise ConfigurationError(
            "there is no `target` in it: give a Serve file of ours, or the args of its application"
        )
    return to_vllm(
        _settings(VerifierConfig, target.get("config", {}), "target.config"),
        None if draft is None else _settings(DrafterConfig, draft.get("config", {}), "draft.config"),
    )


def _settings(kind: Any, values: dict[str, Any], where: str) -> Any:
    if kind is VerifierConfig:
        values = {"model": {"model": "-"}, **values}  # what from_vllm gives has none: it says nothing of the target
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, kind, where.split("."))) from None
