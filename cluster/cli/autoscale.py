"""`outrider autoscale replay | synth`: what the autoscaling policy would make of a load."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster.autoscaling.trace import MAX_RATE
from cluster.cli.output import BAD_INPUT, check_output, fail, friendly_errors, out_console
from cluster.cli.probe import check_plot
from workers.core.shown import printable

if TYPE_CHECKING:
    from cluster.autoscaling.model import ReplayModel
    from cluster.autoscaling.replay import PoolBounds, Replay
    from cluster.autoscaling.trace import Kind, LoadPoint
    from cluster.config.autoscaling import AutoscalingSettings, PoolAutoscaling

__all__ = ["app"]

SHOWN_EVENTS = 40

app = typer.Typer(help="Try the autoscaling policy on a load, without a cluster.", no_args_is_help=True)

Base = Annotated[float, typer.Option(help="Requests per second before and after", min=0.0, max=MAX_RATE)]
Peak = Annotated[float, typer.Option(help="Requests per second at the most", min=0.0, max=MAX_RATE)]
Duration = Annotated[float, typer.Option(help="Seconds, a week at most", min=60.0, max=604_800.0)]


@app.command("replay")
def replay_command(
    trace: Annotated[str, typer.Argument(help="CSV or JSON-lines file; or step, ramp, spike, diurnal")],
    config: Annotated[
        Path | None, typer.Option(help="The YAML file that is served; default: default settings, 1 to 100 replicas")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="YAML file: what a replica can do (service_s, seats, verifier_start_s, …)")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG here")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all numbers here, with provenance")] = None,
    base: Base = 2.0,
    peak: Peak = 6.0,
    duration: Duration = 3600.0,
) -> None:
    """Replay a load against the policy: what it decides and why, and what that costs and misses.

    The replicas are a simple queueing model. --base, --peak and --duration belong to the built-in loads.
    """
    from cluster.autoscaling.plot import plot_replay
    from cluster.autoscaling.replay import replay
    from workers.core.provenance import provenance, write_result

    with friendly_errors():
        check_output(json_path, "--json")
        check_plot(plot)
        points = load_of(trace, base, peak, duration)
        settings, replicas, verifiers, drafters = setting_of(config, model)
        result = replay(points, settings, replicas, verifiers, drafters)
        if json_path is not None:
            given = {"settings": settings.model_dump(mode="json"), "model": replicas.model_dump(mode="json")}
            write_result(json_path, result.to_json(), provenance(config=given))
        if plot is not None:
            plot_replay(result, plot)
        show(out_console(), result, replicas, dry_run=settings.dry_run)


@app.command("synth")
def synth(
    kind: Annotated[str, typer.Argument(help="step, ramp, spike or diurnal")],
    out: Annotated[Path, typer.Option(help="The CSV file to write")],
    base: Base = 2.0,
    peak: Peak = 6.0,
    duration: Duration = 3600.0,
) -> None:
    """Write a load as CSV, to be changed and replayed."""
    from cluster.autoscaling.trace import KINDS, write_trace

    with friendly_errors():
        check_output(out, "--out")
        if kind not in KINDS:
            raise fail(f"{printable(kind)}: there is no such load; allowed: {', '.join(KINDS)}", BAD_INPUT)
        points = load_of(kind, base, peak, duration)
        write_trace(points, out)
        out_console().print(f"{len(points)} rows in {escape(str(out))}", soft_wrap=True)


def load_of(trace: str, base: float, peak: float, duration_s: float) -> "list[LoadPoint]":
    """A file or one of the built-in loads."""
    from cluster.autoscaling.trace import KINDS, read_trace, synthesize

    if trace in KINDS:
        kind: Kind = trace  # type: ignore[assignment]  # it was looked up
        return synthesize(kind, base=base, peak=peak, duration_s=duration_s)
    return read_trace(Path(trace))


def setting_of(
    config: Path | None, model: Path | None
) -> "tuple[AutoscalingSettings, ReplayModel, PoolBounds, PoolBounds | None]":
    """Policy, replicas, and bounds of both pools."""
    from cluster.autoscaling.model import ReplayModel
    from cluster.autoscaling.replay import PoolBounds
    from cluster.config.autoscaling import AutoscalingSettings, PoolAutoscaling
    from cluster.config.yaml_file import read_settings

    replicas = ReplayModel() if model is None else read_settings(model, ReplayModel)
    if config is None:
        default = PoolAutoscaling(max_replicas=100)
        return AutoscalingSettings(), replicas, bounds_of(default, 1), bounds_of(default, 1)
    from cluster.config.loader import load_config

    args = load_config(config).args
    known: dict[str, int] = {"seats": args.target.config.max_running_requests}
    known["max_waiting"] = args.target.config.max_waiting_requests
    if args.draft is not None:
        known["max_sessions"] = args.draft.config.max_sessions
    known = {name: value for name, value in known.items() if name not in replicas.model_fields_set}
    drafters: PoolBounds | None = None
    if args.draft is not None:
        drafters = bounds_of(args.draft.autoscaling, args.draft.num_replicas)
    verifiers = bounds_of(args.target.autoscaling, args.target.num_replicas)
    return args.autoscaling, replicas.model_copy(update=known), verifiers, drafters


def bounds_of(limits: "PoolAutoscaling | None", fixed: int) -> "PoolBounds":
    """A pool that is not scaled keeps its number."""
    from cluster.autoscaling.replay import PoolBounds

    if limits is None:
        return PoolBounds(fixed, fixed)
    return PoolBounds(limits.min_replicas, limits.max_replicas, limits.initial_replicas)


def show(console: Console, result: "Replay", model: "ReplayModel", *, dry_run: bool) -> None:
    console.print(_events(result, dry_run=dry_run))
    if len(result.events) > SHOWN_EVENTS:
        console.print(f"… and {len(result.events) - SHOWN_EVENTS} more (--json has all)")
    table = Table(title="Pools")
    for column in ("pool", "replica-seconds", "most", "at the end", "steps up", "steps down", "reversals"):
        table.add_column(column)
    for pool in result.pools():
        numbers = (pool.most, pool.last, pool.ups, pool.downs, pool.reversals)
        table.add_row(pool.pool, f"{pool.replica_s:.0f}", *(str(number) for number in numbers))
    console.print(table)
    requests = max(result.requests, 1e-9)
    console.print(
        f"verifiers: {result.most_needed:.1f} needed at the peak, overshoot {result.overshoot:+.0%}\n"
        f"requests: {result.requests:.0f}, refused {result.refused / requests:.1%}, first token later than "
        f"{model.slo_ttft_ms:g} ms {result.violations / requests:.1%}",
        soft_wrap=True,
    )


def _events(result: "Replay", *, dry_run: bool) -> Table:
    table = Table(title="What it would do (dry run)" if dry_run else "Scale events")
    for column in ("time s", "pool", "from", "to", "why"):
        table.add_column(column)
    for event in result.events[:SHOWN_EVENTS]:
        table.add_row(f"{event.time_s:.0f}", event.pool, str(event.before), str(event.after), escape(event.reason))
    return table
