"""`outrider status`: the model, its limits, the pools and their replicas."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from outrider import ModelInfo, ServerInfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cluster.cli.connection import ApiKeyFile, CaFile, Tls, connect
from cluster.cli.generate import DEFAULT_TARGET
from cluster.cli.output import friendly_errors, out_console, plain
from cluster.cli.routing import show_routing
from cluster.cli.text import check_text

__all__ = ["status"]


def status(
    target: Annotated[str, typer.Option(help="host:port of the server")] = DEFAULT_TARGET,
    explain: Annotated[
        str | None, typer.Option(metavar="REQUEST_ID", help="Show instead why a recent request went where it went")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
    api_key_file: ApiKeyFile = None,
    tls: Tls = False,
    ca: CaFile = None,
) -> None:
    """Show what a server runs."""
    with friendly_errors():
        check_text("--explain", explain)
        with connect(target, api_key_file, tls=tls, ca=ca) as client:
            if explain is not None:
                decisions = client.explain_routing(explain)
                show_routing(out_console(), decisions, as_json=as_json)
                return
            model, server = client.model_info(), client.server_info()
        if as_json:
            typer.echo(json.dumps({"model": asdict(model), "server": asdict(server)}, indent=2))
            return
        show(out_console(), model, server)


def show(console: Console, model: ModelInfo, server: ServerInfo) -> None:
    console.print(model_table(model))
    console.print(replica_table(server))
    for role in ("verifier", "drafter"):
        if not any(one.role == role for one in server.replicas):
            console.print(f"[yellow]no {role} is running[/]")


def model_table(model: ModelInfo) -> Table:
    table = Table(title=plain(model.model), show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")  # a fingerprint is of use only whole
    table.add_row("fingerprint", plain(model.model_fingerprint))
    table.add_row("tokenizer", plain(model.tokenizer_hash))
    table.add_row("context", f"{model.context_length} tokens, vocabulary {model.vocab_size}, {plain(model.dtype)}")
    table.add_row("trees", f"depth {model.max_depth}, width {model.max_width}, nodes {model.max_nodes}")
    rules = ", ".join(f"{rule} (default)" if rule == model.default_rule else str(rule) for rule in model.allowed_rules)
    table.add_row("rules", rules)
    return table


def replica_table(server: ServerInfo) -> Table:
    """Addresses and pools keep their width, so that an address can be copied; the other columns give way."""
    replicas = sorted(server.replicas, key=lambda one: (one.role != "verifier", one.replica_id))
    table = Table(
        title=f"Replicas (server {plain(server.version)})",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("pool", width=max((len(one.role) for one in replicas), default=None), overflow="fold")
    table.add_column("replica", overflow="fold")
    table.add_column("address", width=max((len(one.address) for one in replicas), default=None), overflow="fold")
    for name in ("model", "running / waiting", "free K/V blocks"):
        table.add_column(name, overflow="fold")
    for one in replicas:
        requests = f"{one.running_requests} / {one.waiting_requests}"
        blocks = f"{one.free_kv_blocks} / {one.total_kv_blocks}" if one.total_kv_blocks else "-"
        table.add_row(plain(one.role), plain(one.replica_id), plain(one.address), plain(one.model), requests, blocks)
    return table
