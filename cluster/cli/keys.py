"""`outrider keys new | list | revoke`: the file of API keys that gateways read (`gateway.tenancy.keys_file`)."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cluster.cli.output import check_output, err_console, friendly_errors, out_console, plain
from cluster.config.explain import validated
from cluster.security.api_keys import hash_of, new_key
from cluster.security.key_file import KeyEntry, KeyFile, read_keys, write_keys
from workers.core.errors import ConfigurationError, NotFoundError

__all__ = ["app"]

app = typer.Typer(help="API keys of the gateways.", no_args_is_help=True)

File = Annotated[Path, typer.Option(help="YAML or JSON file of the keys")]
DEFAULT_FILE = Path("keys.yaml")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Whose key: letters, digits and . _ @ -")],
    file: File = DEFAULT_FILE,
    max_concurrent_requests: Annotated[int | None, typer.Option(help="Requests at a time")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="Prompt and output tokens")] = None,
    burst_tokens: Annotated[int | None, typer.Option(help="Tokens that can be saved up")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(help="Upper bound of max_tokens")] = None,
    most_urgent_priority: Annotated[int | None, typer.Option(help="-10 to 10; smaller is more urgent")] = None,
    weight: Annotated[float | None, typer.Option(help="Share against other keys")] = None,
) -> None:
    """Make a key, print it once, and add its hash to the file. The key cannot be shown again."""
    with friendly_errors():
        check_output(file, "--file")
        content = read_keys(file) if file.exists() else KeyFile()
        if name in content.keys:
            raise ConfigurationError(f"{file}: there is a key {name} already; revoke it first, or choose another name")
        limits = {
            "max_concurrent_requests": max_concurrent_requests,
            "tokens_per_minute": tokens_per_minute,
            "burst_tokens": burst_tokens,
            "max_output_tokens": max_output_tokens,
            "most_urgent_priority": most_urgent_priority,
            "weight": weight,
        }
        key = new_key()
        entry = {
            "sha256": hash_of(key),
            "created": date.today(),
            "limits": {one: value for one, value in limits.items() if value is not None},
        }
        content = validated(KeyFile, {"keys": {**content.keys, name: entry}}, "")
        write_keys(file, content)
        out_console().print(key, markup=False, soft_wrap=True)
        err_console().print(
            f"[dim]{name}: its hash is in {plain(str(file))}; the key is not stored and not shown again[/]"
        )


@app.command("list")
def show(file: File = DEFAULT_FILE) -> None:
    """Names, dates and limits. Hashes are not shown, and keys are not known."""
    with friendly_errors():
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in ("key", "made", "limits of its own"):
            table.add_column(column, overflow="fold")
        for name, entry in read_keys(file).keys.items():
            table.add_row(name, str(entry.created or "-"), plain(_limits(entry)))
        out_console().print(table)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="Whose key")],
    file: File = DEFAULT_FILE,
) -> None:
    """Take a key out of the file. Gateways refuse it within a second or two; what runs goes on to its end."""
    with friendly_errors():
        content = read_keys(file)
        if name not in content.keys:
            raise NotFoundError(f"{file}: there is no key {name}; there are: {', '.join(content.keys) or 'none'}")
        write_keys(file, KeyFile(keys={one: entry for one, entry in content.keys.items() if one != name}))
        err_console().print(f"[dim]{name}: revoked[/]")


def _limits(entry: KeyEntry) -> str:
    return ", ".join(f"{name} {value}" for name, value in entry.limits.items()) or "-"
