"""`outrider convert speculative-config`: between vLLM's JSON and our YAML."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from cluster.cli.output import err_console, friendly_errors
from cluster.config.explain import validated
from cluster.config.loader import our_application
from cluster.config.vllm_speculative import Conversion, from_vllm, target_settings, to_vllm
from cluster.config.yaml_file import parse_mapping, read_mapping
from workers.core.config import DrafterConfig
from workers.core.errors import ConfigurationError
from workers.core.shown import shown

__all__ = ["app"]

EXPECTED = "an object with settings is expected"

app = typer.Typer(help="Carry settings over from and to other engines.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Carry settings over from and to other engines."""


@app.command("speculative-config")
def speculative_config(
    source: Annotated[str, typer.Argument(help="A file, or the text itself")],
    reverse: Annotated[bool, typer.Option("--reverse", help="From our YAML to vLLM's JSON")] = False,
) -> None:
    """Turn vLLM's --speculative-config into `target` and `draft` of our application, or back; says what gets lost."""
    with friendly_errors():
        document = _read(source)
        conversion = _to_vllm(document) if reverse else from_vllm(document)
        settings = conversion.settings
        typer.echo(json.dumps(settings) if reverse else yaml.safe_dump(settings, sort_keys=False).rstrip())
        for line in conversion.lost:
            err_console().print(f"[yellow]no counterpart:[/] {escape(line)}", soft_wrap=True, markup=True)
        if not reverse:
            note = "target.config.model, the target itself, which vLLM takes from its command line"
            err_console().print(f"[yellow]to add:[/] {note}", soft_wrap=True)


def _read(source: str) -> dict[str, Any]:
    if source.lstrip().startswith("{") or "\n" in source:
        return parse_mapping(source, "the text", EXPECTED)
    return read_mapping(Path(source), EXPECTED)


def _to_vllm(document: Mapping[str, Any]) -> Conversion:
    """Takes a whole Serve file, the `args` of an application, or its `target` and `draft` alone."""
    if document.get("applications") is not None:
        index, application = our_application(document)
        document = _mapping(application, "args", f"applications.{index}.")
    if document.get("target") is None:
        raise ConfigurationError(
            "there is no `target` in it: give a Serve file of ours, or the args of its application"
        )
    target = target_settings(_mapping(_mapping(document, "target"), "config", "target."))
    if document.get("draft") is None:
        return to_vllm(target, None)
    draft = _mapping(_mapping(document, "draft"), "config", "draft.")
    return to_vllm(target, validated(DrafterConfig, draft, "draft.config"))


def _mapping(owner: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    """What `owner` has under `key`; null and nothing are an empty mapping."""
    value = owner.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}{key}: a mapping of settings is expected (got {shown(value)})")
    return value
