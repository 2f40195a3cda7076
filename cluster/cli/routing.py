"""How a request was routed, for `outrider status --explain`."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import typer
from outrider import RoutingDecision
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cluster.cli.output import plain

__all__ = ["show_routing"]


def show_routing(console: Console, decisions: Sequence[RoutingDecision], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"decisions": [asdict(one) for one in decisions]}, indent=2))
        return
    for decision in decisions:
        console.print(_table(decision))


def _table(decision: RoutingDecision) -> Table:
    """Candidates best first; those that were chosen are marked."""
    table = Table(
        title=plain(
            f"answer {decision.index}: {decision.pool} by {decision.policy}, {decision.num_replicas} replicas, "
            f"{decision.prompt_tokens} prompt tokens, {decision.decision_ms:.2f} ms"
        ),
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    terms = list(decision.candidates[0].terms) if decision.candidates else []
    for name in ("", "replica", "cached tokens", *terms, "cost"):
        table.add_column(plain(name), overflow="fold", justify="left" if name in ("", "replica") else "right")
    for place, one in enumerate(decision.candidates):
        numbers = [f"{one.terms[name]:.1f}" for name in terms]
        chosen = "*" if place < decision.num_chosen else ""
        table.add_row(chosen, plain(one.replica_id), str(one.cached_tokens), *numbers, f"{one.cost:.1f}")
    return table
